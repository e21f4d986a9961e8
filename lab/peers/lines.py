"""The protocol between the harness and a peer: JSON objects, one a line. Python's side of it."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

# The authority to trust, and the largest line: far above any request's.
CA = os.environ.get("LAB_CA", "")
LINE_BYTES_MAX = 1 << 20


@dataclass
class Request:
    """What the harness asks for."""

    id: str
    method: str
    url: str
    body_bytes: int
    deadline_ms: int
    started: float
    key: str | None = None

    @property
    def left_s(self) -> float:
        """Seconds until the harness counts the request as failed."""
        return self.deadline_ms / 1000 - (time.monotonic() - self.started)

    @property
    def headers(self) -> dict[str, str]:
        """What to send beside what the client itself does: the key by which the service knows the request again."""
        return {"idempotency-key": self.key} if self.key else {}

    @property
    def body(self) -> bytes | None:
        """What to send; none where the method has no body."""
        return bytes(self.body_bytes) if self.body_bytes else None


Fetch = Callable[[Request], Awaitable[tuple[int, int]]]


async def serve(peer: str, version: str, settings: str, fetch: Fetch) -> None:
    """Says what the peer is, then answers requests until it is told to quit. `fetch` gives status and length."""
    say({"ready": {"peer": peer, "version": version, "settings": settings}})
    lines = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    running = set()
    while line := await lines.readline():
        asked = json.loads(line)
        if asked.get("quit"):
            break
        task = asyncio.create_task(answer(Request(**asked, started=time.monotonic()), fetch))
        running.add(task)
        task.add_done_callback(running.discard)
    for task in running:
        task.cancel()


async def answer(request: Request, fetch: Fetch) -> None:
    """Carries one request out and tells the harness how it went."""
    status, length, error = None, 0, None
    try:
        async with asyncio.timeout(max(request.left_s, 0)):
            status, length = await fetch(request)
    except TimeoutError:
        error = "deadline"
    except Exception as failure:  # Whatever the peer throws is its answer.
        error = f"{type(failure).__name__}: {failure}"
    ms = (time.monotonic() - request.started) * 1000
    say({"id": request.id, "status": status, "bytes": length, "ms": round(ms, 1), "error": error})


def say(message: dict) -> None:
    """Writes one line."""
    print(json.dumps(message), flush=True)
