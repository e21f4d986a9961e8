// undici's fetch, HTTP/2 allowed, with its own retry interceptor at its defaults.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { CA, serve } from "./lines.mjs";

// The package lies in the folder of the installer, not beside this file.
const require = createRequire(`${process.env.LAB_PEERS}/`);
const { Agent, fetch, interceptors } = require("undici");
const { version } = require("undici/package.json");

const connect = { ca: CA ? readFileSync(CA) : undefined };
const dispatcher = new Agent({ allowH2: true, connect }).compose(interceptors.retry());

const settings =
  "interceptors.retry() at its defaults: 5 retries from 500 ms doubling, not for POST (undici.nodejs.org, RetryAgent and " +
  "Dispatcher); allowH2";

await serve({ peer: "undici", version: `${version} on Node ${process.version}`, settings }, async (request) => {
  const response = await fetch(request.url, {
    method: request.method,
    headers: request.key ? { "idempotency-key": request.key } : {},
    body: request.body_bytes ? new Uint8Array(request.body_bytes) : undefined,
    signal: AbortSignal.timeout(request.deadline_ms),
    dispatcher,
  });
  const body = await response.arrayBuffer();
  return { status: response.status, bytes: body.byteLength };
});
process.exit(0);
