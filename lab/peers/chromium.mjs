// Chromium's network stack: `fetch` in a page of the headless shell, driven over a pipe by the DevTools protocol.

import { spawn } from "node:child_process";
import { createHash, X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { CA, serve } from "./lines.mjs";

const RACING = process.argv.includes("--happy-eyeballs-v3");
const ORIGIN = process.env.LAB_ORIGIN ?? "https://api.test";

// The DevTools protocol over --remote-debugging-pipe: messages end in a zero byte.
class Browser {
  constructor(program, args) {
    this.process = spawn(program, args, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.process.once("exit", (code) => this.#fail(new Error(`Chromium ended: ${code}`)));
    this.process.once("error", (error) => this.#fail(error));
    this.pending = new Map();
    this.handlers = new Map();
    this.next = 1;
    let rest = "";
    this.process.stdio[3].on("error", () => {});
    this.process.stdio[4].setEncoding("utf8").on("data", (text) => {
      const messages = (rest + text).split("\0");
      rest = messages.pop();
      messages.forEach((message) => this.#take(JSON.parse(message)));
    });
  }

  // Calls a method and gives its result.
  call(method, params = {}, sessionId = undefined) {
    const id = this.next++;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => this.pending.set(id, { resolve, reject }));
  }

  // Names who is told of an event.
  on(event, handler) {
    this.handlers.set(event, handler);
  }

  #take(message) {
    const waiting = this.pending.get(message.id);
    if (!waiting) return this.handlers.get(message.method)?.(message.params);
    this.pending.delete(message.id);
    return message.error ? waiting.reject(new Error(message.error.message)) : waiting.resolve(message.result);
  }

  #fail(error) {
    this.pending.forEach(({ reject }) => reject(error));
    this.pending.clear();
  }
}

// Opens a page that belongs to the origin without a single byte on the network: its document is made up here.
async function openPage(browser) {
  const { targetId } = await browser.call("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await browser.call("Target.attachToTarget", { targetId, flatten: true });
  const page = (method, params) => browser.call(method, params, sessionId);
  const loaded = new Promise((resolve) => browser.on("Page.loadEventFired", resolve));
  browser.on("Fetch.requestPaused", ({ requestId }) =>
    page("Fetch.fulfillRequest", { requestId, responseCode: 200, body: btoa("<!doctype html><title>peer</title>") }),
  );
  await page("Page.enable");
  await page("Fetch.enable", { patterns: [{ urlPattern: `${ORIGIN}/*` }] });
  await page("Page.navigate", { url: `${ORIGIN}/` });
  await loaded;
  await page("Fetch.disable");
  return page;
}

// Runs in the page.
async function request({ url, method, body_bytes, key, deadline_ms }) {
  const body = body_bytes ? new Uint8Array(body_bytes) : undefined;
  const signal = AbortSignal.timeout(deadline_ms);
  const headers = key ? { "idempotency-key": key } : {};
  const response = await fetch(url, { method, headers, body, signal, cache: "no-store" });
  return { status: response.status, bytes: (await response.arrayBuffer()).byteLength };
}

// The hash by which Chromium takes our authority for good; its own store cannot be added to from outside.
function spki(path) {
  const key = new X509Certificate(readFileSync(path)).publicKey;
  return createHash("sha256").update(key.export({ type: "spki", format: "der" })).digest("base64");
}

const profile = mkdtempSync(join(tmpdir(), "ropeway-lab-chromium-"));
process.on("exit", () => rmSync(profile, { recursive: true, force: true, maxRetries: 3 }));
const browser = new Browser("chromium-headless-shell", [
  "--remote-debugging-pipe",
  "--no-sandbox",
  "--no-first-run",
  "--disable-gpu",
  "--disable-dev-shm-usage",
  "--disable-background-networking",
  "--disable-component-update",
  `--user-data-dir=${profile}`,
  `--ignore-certificate-errors-spki-list=${CA ? spki(CA) : ""}`,
  "--enable-quic",
  // Names the host, at a port nobody uses, as one whose HTTP/3 may rest on a private authority. HTTP/3 itself is learned from
  // Alt-Svc, as everywhere.
  `--origin-to-force-quic-on=${new URL(ORIGIN).hostname}:9`,
  ...(RACING ? ["--enable-features=HappyEyeballsV3"] : []),
]);
const { product } = await browser.call("Browser.getVersion");
const page = await openPage(browser);

const ready = {
  peer: RACING ? "chromium-hev3" : "chromium",
  version: product.replace("HeadlessChrome/", ""),
  settings: `defaults${RACING ? " and HappyEyeballsV3" : ""}; fetch() has no retry setting, and Chromium documents none`,
};
await serve(ready, async (asked) => {
  const expression = `(${request})(${JSON.stringify(asked)})`;
  const { result, exceptionDetails } = await page("Runtime.evaluate", {
    expression,
    awaitPromise: true,
    returnByValue: true,
  });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
});
browser.process.once("exit", () => process.exit(0));
browser.process.kill();
