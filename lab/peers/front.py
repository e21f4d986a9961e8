"""The web server that foreign peers find at the server's addresses: HTTP/1.1, 2 and 3, passing all to the origin behind it.

It stands where a Ropeway gateway stands for Ropeway, so that a fault between front and origin hits both alike.
"""

import argparse
import asyncio

import aiohttp

import serving

# Headers of one connection and not of the message (RFC 9110, section 7.6.1); length is told by the next connection itself.
HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"transfer-encoding", b"upgrade", b"content-length"}

# Tells the origin by which version the request came, for its log.
VERSION = "lab-http-version"

# Header of a key, which goes on to the origin.
KEY = b"idempotency-key"


class Front:
    """The ASGI app: a reverse proxy."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: dict, receive: serving.Receive, send: serving.Send) -> None:
        if scope["type"] == "http":
            body = await serving.read_body(receive)
            if body is not None:
                await self.forward(scope, body, send)

    async def forward(self, scope: dict, body: bytes, send: serving.Send) -> None:
        """Passes a request on and its answer back, part by part."""
        self.session = self.session or aiohttp.ClientSession(auto_decompress=False)
        url = f"{self.upstream}{scope['path']}?{scope['query_string'].decode()}"
        try:
            # Whether to try again is the client's to decide.
            headers = {VERSION: scope["http_version"]}
            headers |= {name.decode(): value.decode() for name, value in scope["headers"] if name.lower() == KEY}
            answer = await self.session.request(scope["method"], url, data=body or None, headers=headers, allow_redirects=False)
        except aiohttp.ClientError:
            await send({"type": "http.response.start", "status": 502, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        async with answer:
            headers = [(name.lower(), value) for name, value in answer.raw_headers if name.lower() not in HOP_BY_HOP]
            if answer.content_length is not None:
                headers.append((b"content-length", b"%d" % answer.content_length))
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for part in answer.content.iter_any():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body"})


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bind", metavar="ADDR:PORT", action="append", required=True, help="TCP and UDP, each address by itself")
    parser.add_argument("--plain-bind", metavar="ADDR:PORT", action="append", default=[], help="HTTP/1.1 without TLS")
    parser.add_argument("--cert", metavar="PEM", required=True)
    parser.add_argument("--key", metavar="PEM", required=True)
    parser.add_argument("--upstream", metavar="URL", required=True, help="the origin, such as http://127.0.0.1:8000")
    args = parser.parse_args()
    config = serving.config(args.bind, args.plain_bind)
    config.certfile, config.keyfile, config.quic_bind = args.cert, args.key, args.bind
    asyncio.run(serving.serve(Front(args.upstream), config))


if __name__ == "__main__":
    main()
