"""What origin and front share: hypercorn's set-up, and reading a body."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

from hypercorn.asyncio import serve as hypercorn
from hypercorn.config import Config

Receive = Callable[[], Awaitable[dict]]
Send = Callable[[dict], Awaitable[None]]

# Idle connections stay for 75 s, nginx's default keepalive_timeout; hypercorn's own 5 s would be a fault no scenario asked for.
KEEP_ALIVE_S = 75
# Pause between two looks whether the server listens.
LOOK_S = 0.02


def config(bind: list[str], plain_bind: list[str] | None = None) -> Config:
    """Gives hypercorn's configuration; without a certificate `bind` is plain HTTP/1.1."""
    made = Config()
    made.bind = bind
    made.insecure_bind = plain_bind or []
    made.keep_alive_timeout = KEEP_ALIVE_S
    made.graceful_timeout = 0
    made.include_server_header = False
    return made


async def serve(app: Callable, made: Config) -> None:
    """Serves until SIGTERM or SIGINT, and writes a line once it listens."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    serving = asyncio.ensure_future(hypercorn(app, made, shutdown_trigger=stop.wait))
    telling = asyncio.create_task(tell(made.bind[-1]))
    await serving
    telling.cancel()


async def tell(bind: str) -> None:
    """Tries the last address until something listens there; hypercorn does not say so itself."""
    host, port = bind.rsplit(":", 1)
    while True:
        try:
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError:
            await asyncio.sleep(LOOK_S)
            continue
        writer.close()
        print("listening", flush=True)
        return


async def read_body(receive: Receive) -> bytes | None:
    """Reads the whole body; none if the client goes first."""
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return None
        body += event.get("body", b"")
        if not event.get("more_body", False):
            return bytes(body)
