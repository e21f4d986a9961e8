"""One HTTP/3 request by a foreign implementation (aioquic): the body goes to standard output.

    h3_client.py --connect 127.0.0.1:7443 --ca ca.pem [--post FILE] https://demo.test/bytes?n=100
"""

import argparse
import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, StreamReset

PIECE_BYTES = 16 * 1024


class Exchange(QuicConnectionProtocol):
    """A connection for one request; the answer is (status, body)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.status = None
        self.body = bytearray()
        self.answer = asyncio.get_running_loop().create_future()

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        if isinstance(event, (ConnectionTerminated, StreamReset)) and not self.answer.done():
            self.answer.set_exception(ConnectionError(repr(event)))
        for heard in self.http.handle_event(event) if self.http else []:
            if isinstance(heard, HeadersReceived) and self.status is None:
                self.status = int(dict(heard.headers)[b":status"])
            if isinstance(heard, DataReceived):
                self.body += heard.data
            if isinstance(heard, (DataReceived, HeadersReceived)) and heard.stream_ended and not self.answer.done():
                self.answer.set_result((self.status, bytes(self.body)))

    async def ask(self, url, body):
        path = url.path + ("?" + url.query if url.query else "")
        headers = [(":method", "GET" if body is None else "POST"), (":scheme", "https"), (":authority", url.hostname)]
        headers.append((":path", path or "/"))
        if body is not None:
            headers.append(("content-length", str(len(body))))
        stream = self._quic.get_next_available_stream_id()
        fields = [(name.encode(), value.encode()) for name, value in headers]
        self.http.send_headers(stream, fields, end_stream=body is None)
        for start in range(0, len(body or b""), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            self.http.send_data(stream, piece, end_stream=start + PIECE_BYTES >= len(body))
        self.transmit()
        return await asyncio.wait_for(self.answer, 30)


async def run(options):
    url = urlsplit(options.url)
    host, port = options.connect.rsplit(":", 1)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name=url.hostname)
    configuration.load_verify_locations(cafile=options.ca)
    body = Path(options.post).read_bytes() if options.post else None
    async with connect(host, int(port), configuration=configuration, create_protocol=Exchange) as exchange:
        status, answer = await exchange.ask(url, body)
    sys.stdout.buffer.write(answer)
    return 0 if status == 200 else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--connect", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--post")
    parser.add_argument("url")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
