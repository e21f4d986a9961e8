// The protocol between the harness and a peer: JSON objects, one a line. JavaScript's side of it.

import { createInterface } from "node:readline";

// The authority to trust.
export const CA = process.env.LAB_CA ?? "";

// Says what the peer is, then answers requests until it is told to quit. `fetch` gives { status, bytes }.
export async function serve(ready, fetch) {
  say({ ready });
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    if (request.quit) break;
    void answer(request, fetch);
  }
}

async function answer(request, fetch) {
  const started = performance.now();
  let outcome;
  try {
    const { status, bytes } = await within(request.deadline_ms, fetch(request));
    outcome = { status, bytes, error: null };
  } catch (failure) {
    outcome = { status: null, bytes: 0, error: describe(failure) };
  }
  say({ id: request.id, ms: Math.round((performance.now() - started) * 10) / 10, ...outcome });
}

// A deadline of our own, as a peer may overlook its own.
function within(deadlineMs, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("deadline")), deadlineMs);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// `fetch` says "fetch failed" and hides the reason in `cause`.
function describe(failure) {
  const cause = failure?.cause;
  return cause ? `${failure.message}: ${cause.code ?? cause.message}` : String(failure?.message ?? failure);
}

function say(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
