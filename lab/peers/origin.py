"""The service that every peer reaches in the end: plain HTTP/1.1, with a log of what it really executed.

GET /bytes/N gives N bytes; POST to any path takes a body and gives its length. One with an `Idempotency-Key` that came before is
answered as it was then, and not executed again. `?id=` names the request in the log, which has one JSON object a line: id, method,
bytes of the request's body, Unix time, and the HTTP version by which the front got it, if it says.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from urllib.parse import parse_qs

import serving

# Far above any work of the lab.
ANSWER_BYTES_MAX = 64 * 1024 * 1024

# Header by which the front tells it.
VERSION = b"lab-http-version"

# Header of the key (draft-ietf-httpapi-idempotency-key-header).
KEY = b"idempotency-key"


class Origin:
    """The ASGI app."""

    def __init__(self, log: Path) -> None:
        self.log = log.open("a", buffering=1)
        # A run has few requests with keys.
        self.answers: dict[bytes, tuple[int, bytes]] = {}

    async def __call__(self, scope: dict, receive: serving.Receive, send: serving.Send) -> None:
        if scope["type"] != "http":
            return
        body = await serving.read_body(receive)
        if body is None:
            return  # The client left before its request was whole: nothing is executed.
        key = dict(scope["headers"]).get(KEY)
        status, answer = self.answers.get(key) or self.execute(scope, len(body))
        if key:
            self.answers[key] = (status, answer)
        headers = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def execute(self, scope: dict, body_bytes: int) -> tuple[int, bytes]:
        """Does what the request asks for, once for each time it arrives, and writes that down."""
        name = parse_qs(scope["query_string"].decode()).get("id", [""])[0]
        version = dict(scope["headers"]).get(VERSION)
        line = {"id": name, "method": scope["method"], "bytes": body_bytes, "time": time.time()}
        self.log.write(json.dumps(line | {"http": version and version.decode()}) + "\n")
        if scope["method"] == "POST":
            return 200, b"%d" % body_bytes
        size = scope["path"].removeprefix("/bytes/")
        if not size.isdecimal() or int(size) > ANSWER_BYTES_MAX:
            return 404, b"GET /bytes/N or POST\n"
        return 200, bytes(int(size))


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bind", metavar="ADDR:PORT", action="append", required=True)
    parser.add_argument("--log", metavar="FILE", type=Path, required=True, help="the log of executed requests")
    args = parser.parse_args()
    asyncio.run(serving.serve(Origin(args.log), serving.config(args.bind)))


if __name__ == "__main__":
    main()
