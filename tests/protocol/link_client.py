"""A client of link protocol v1 over a WebSocket, written from docs/protocol/: for tests against a real gateway.

    link_client.py --url wss://127.0.0.1:8443/.ropeway/link --ca ca.pem --name localhost --ticket ticket.jwt \\
        --device-key device.pem get https://api.test/path
"""

import argparse
import asyncio
import base64
import json
import secrets
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from decoder import ENUMS, KINDS, MESSAGES, frames, message
from fields import Blocks
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

END = 1
NUMBERS = {kind: number for number, kind in KINDS.items()}
CHANNEL_CREDIT, LINK_CREDIT = 256 * 1024, 1024 * 1024
BODY_BYTES_MAX = 16 * 1024
IDS_MAX = 4096


class Refused(Exception):
    """The gateway sent REFUSE; the arguments are its code and its detail."""


class Reset(Exception):
    """The gateway ended an exchange; the arguments are its code and its detail."""


def write_varint(value):
    for bits, length in ((6, 1), (14, 2), (30, 4), (62, 8)):
        if value < 1 << bits:
            return (value | (length.bit_length() - 1) << (8 * length - 2)).to_bytes(length)
    raise ValueError(value)


def write_frame(kind, payload=b"", channel=0, flags=0):
    return bytes([NUMBERS[kind], flags]) + write_varint(channel) + write_varint(len(payload)) + payload


def write_message(name, **values):
    """Encodes the protobuf message `name` from the values given, defaults too."""

    def base128(value):
        return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + base128(value >> 7)

    out = b""
    for number, (field, kind, many) in MESSAGES[name].items():
        for value in values.get(field, []) if many else [values[field]] if field in values else []:
            if kind in (*MESSAGES, "bytes", "string"):
                value = value.encode() if kind == "string" else write_message(kind, **value) if kind in MESSAGES else value
                out += base128(number << 3 | 2) + base128(len(value)) + value
            else:
                out += base128(number << 3) + base128(int(value))
    return out


def write_block(fields):
    """Encodes a field block of plain literals, which need neither table nor dictionary."""

    def string(text):
        text, rest = text.encode("latin-1"), b""
        if len(text) < 127:
            return bytes([len(text)]) + text
        left = len(text) - 127
        while left >= 128:
            rest, left = rest + bytes([left & 0x7F | 0x80]), left >> 7
        return b"\x7f" + rest + bytes([left]) + text

    return b"\0" + b"".join(b"\x10" + string(name) + string(value) for name, value in fields)


def read_device_key(path):
    """Reads an Ed25519 key: PEM (PKCS #8, version 1 or 2), 64 hexadecimal digits, or 32 bytes."""
    data = Path(path).read_bytes()
    if b"-----BEGIN" in data:
        der = base64.b64decode(b"".join(line for line in data.splitlines() if b"-----" not in line))
        # RFC 8410 section 7: the seed is an octet string of 32 bytes in one of 34.
        data = der.split(b"\x04\x22\x04\x20", 1)[1][:32]
    elif len(data.strip()) == 64:
        data = bytes.fromhex(data.decode())
    return Ed25519PrivateKey.from_private_bytes(data)


class Socket:
    """A WebSocket with calls that wait, on one thread.

    The library's own client of that kind reads and writes a TLS connection from two threads at once, which Python's
    `ssl` does not allow: now and then, a first message that meets a session ticket is never sent.
    """

    def __init__(self, uri, **options):
        self.runner = asyncio.Runner()

        async def open_socket():
            return await connect(uri, **options)

        try:
            self.socket = self.runner.run(open_socket())
        except BaseException:
            self.runner.close()
            raise
        self.subprotocol = self.socket.subprotocol

    def send(self, data):
        self.runner.run(self.socket.send(data))

    def recv(self, timeout_s):
        async def receive():
            return await asyncio.wait_for(self.socket.recv(), timeout_s)

        return self.runner.run(receive())

    def close(self):
        self.runner.run(self.socket.close())
        self.runner.close()


class Link:
    """One link. What it learns for the next one is in `state`: the cookie and the number of the last push shown."""

    def __init__(self, url, ca, name, ticket, key, topics=(), state=None, device="python-test", timeout_s=30):
        self.timeout_s, self.state = timeout_s, state if state is not None else {}
        self.blocks, self.channel, self.pushes = Blocks(), self.state.get("channel", 0), []
        self.exchanges, self.credit, self.draining = {}, {}, None
        target = urlsplit(url)
        trust = ssl.create_default_context(cafile=ca)
        uri = target._replace(netloc=f"{name}:{target.port}").geturl()
        options = {"subprotocols": ["ropeway.v1"], "compression": None, "max_size": 1 << 18}
        self.socket = Socket(uri, host=target.hostname, port=target.port, ssl=trust, server_hostname=name, **options)
        try:
            self.greet(name, ticket, key, topics, device)
        except BaseException:
            self.socket.close()
            raise

    def greet(self, name, ticket, key, topics, device):
        if self.socket.subprotocol != "ropeway.v1":
            raise Refused("subprotocol", f"the server chose {self.socket.subprotocol}")
        [(kind, _, _, payload)] = frames(self.receive())
        if kind != "PROOF":
            raise ValueError(f"{kind} came where the challenge was expected")
        challenge = bytes.fromhex(message("Proof", payload)["challenge"])
        claims = ticket.split(".")[1]
        audience = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["aud"]
        hello = write_message(
            "Hello", ticket=ticket, app=audience if isinstance(audience, str) else audience[0], device=device,
            sdk="python-test", platform=sys.platform, resume=bytes.fromhex(self.state.get("resume", "")),
            push_sequence=self.state.get("push_sequence", 0), time_ms=time.time_ns() // 1_000_000, gateway=name,
            nonce=secrets.token_bytes(16), channel_credit=CHANNEL_CREDIT, link_credit=LINK_CREDIT, topics=list(topics),
        )  # fmt: skip
        signed = write_message("SignedHello", hello=hello, signature=key.sign(b"ropeway hello v1\0" + hello))
        proof = write_message("Proof", signature=key.sign(b"ropeway proof v1\0" + challenge))
        self.socket.send(write_frame("HELLO", signed) + write_frame("PROOF", proof))
        self.welcome = None
        self.wait(lambda: self.welcome is not None)

    def receive(self):
        try:
            data = self.socket.recv(self.timeout_s)
        except ConnectionClosed as closed:
            raise Refused("closed", str(closed)) from None
        if isinstance(data, str):
            raise ValueError("a text message came where frames are binary")
        return data

    def wait(self, done):
        """Takes frames until `done`."""
        while not done():
            for kind, flags, channel, payload in frames(self.receive()):
                self.handle(kind, "END" in flags, channel, payload)

    def handle(self, kind, end, channel, payload):
        exchange = self.exchanges.get(channel)
        if kind == "WELCOME":
            self.welcome = message("Welcome", payload)
            self.state["resume"] = self.welcome["resume"]
            self.state["push_sequence"] = self.welcome.get("push_sequence", 0)
            if not self.welcome.get("resumed"):
                self.channel = 0
            self.credit[0] = self.welcome.get("link_credit", 0)
        elif kind == "REFUSE":
            refuse = message("Refuse", payload)
            raise Refused(refuse.get("code", ENUMS["RefuseCode"][0]), refuse.get("detail", ""))
        elif kind == "PING":
            self.socket.send(write_frame("PONG", payload))
        elif kind == "PROBE":
            self.socket.send(write_frame("PROBE", payload))
        elif kind == "CREDIT":
            self.credit[channel] = self.credit.get(channel, 0) + message("Credit", payload).get("bytes", 0)
        elif kind == "PUSH":
            self.pushes.append(message("Push", payload))
        elif kind == "DRAIN":
            self.draining = message("Drain", payload)
        elif kind in ("RESPONSE", "TRAILERS"):
            fields = self.blocks.decode(kind, payload)
            if exchange is not None:
                exchange["fields" if kind == "RESPONSE" else "trailers"] = fields
                exchange["end"] = end or kind == "TRAILERS"
        elif kind == "BODY":
            if exchange is not None:
                exchange["body"] += payload
                exchange["end"] = end
            if payload:
                grant = write_message("Credit", bytes=len(payload))
                self.socket.send(write_frame("CREDIT", grant) + (b"" if end or exchange is None else write_frame("CREDIT", grant, channel)))
        elif kind == "RESET":
            reset = message("Reset", payload)
            if exchange is not None:
                exchange["reset"] = Reset(reset.get("code", ENUMS["ResetCode"][0]), reset.get("detail", ""))
        elif kind in ("LIST", "POLICY", "REDIRECT"):
            pass  # This client knows one gateway, and asks for little.
        else:
            raise ValueError(f"{kind} is not for a client")

    def request(self, method, url, headers=(), body=b""):
        """Sends a request and waits for its answer: a dict of `status`, `headers`, `body` and `trailers`."""
        target = urlsplit(url)
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        pseudo = [(":method", method), (":scheme", target.scheme), (":authority", target.netloc), (":path", path)]
        self.channel = channel = self.channel + 1
        self.state["channel"] = channel
        exchange = self.exchanges[channel] = {"body": b"", "end": False, "reset": None, "fields": None, "trailers": []}
        self.credit[channel] = self.welcome.get("channel_credit", 0)
        self.socket.send(write_frame("REQUEST", write_block([*pseudo, *headers]), channel, 0 if body else END))

        def over():
            return exchange["end"] or exchange["reset"]

        while body and not over():
            self.wait(lambda: over() or min(self.credit[0], self.credit[channel]) > 0)
            length = min(self.credit[0], self.credit[channel], BODY_BYTES_MAX)
            piece, body = body[:length], body[length:]
            self.credit[0], self.credit[channel] = self.credit[0] - len(piece), self.credit[channel] - len(piece)
            self.socket.send(write_frame("BODY", piece, channel, 0 if body else END))
        self.wait(over)
        del self.exchanges[channel]
        if exchange["reset"]:
            raise exchange["reset"]
        status, *headers = [field[:2] for field in exchange["fields"]]
        return {"status": int(status[1]), "headers": headers, "body": exchange["body"], "trailers": exchange["trailers"]}

    def push(self):
        """Waits for the next push that was not shown before; the caller has been shown all earlier ones.

        `gap` is set in it where pushes before it are missing.
        """
        shown = self.state.setdefault("shown", [])
        while True:
            self.acknowledge()
            self.wait(lambda: self.pushes)
            push = self.pushes.pop(0)
            before, self.state["push_sequence"] = self.state["push_sequence"], push["sequence"]
            if push["message_id"] not in shown:
                shown.append(push["message_id"])
                del shown[:-IDS_MAX]
                return {**push, "gap": True} if push["sequence"] > before + 1 else push

    def acknowledge(self):
        """Tells the gateway which pushes were shown."""
        if self.state["push_sequence"]:
            self.socket.send(write_frame("ACK", write_message("Ack", push_sequence=self.state["push_sequence"])))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def main():
    parser = argparse.ArgumentParser(description="Speaks ropeway.v1 over a WebSocket.")
    parser.add_argument("--url", required=True, help="wss://ADDRESS:PORT/.ropeway/link")
    parser.add_argument("--ca", required=True, help="file with the certificate of the authority to believe")
    parser.add_argument("--name", required=True, help="name of the gateway, as in its certificate")
    parser.add_argument("--ticket", required=True, help="file with the ticket")
    parser.add_argument("--device-key", required=True, help="file with the device's Ed25519 key")
    parser.add_argument("--state", help="file that keeps the session between two runs")
    commands = parser.add_subparsers(dest="command", required=True)
    for method in ("get", "post"):
        command = commands.add_parser(method, help="send a request and print the body of its answer")
        command.add_argument("target")
        command.add_argument("-H", "--header", action="append", default=[], help="NAME: VALUE")
        command.add_argument("-i", "--include", action="store_true", help="print status and headers first")
        if method == "post":
            command.add_argument("--data", default="", help="the body, or @FILE")
    command = commands.add_parser("listen", help="print pushes, one JSON object a line")
    command.add_argument("--count", type=int, default=0, help="stop after so many; 0 never stops")
    command.add_argument("--topic", action="append", default=[])
    command.add_argument("--timeout", type=float, default=None, help="seconds to wait for each")
    args = parser.parse_args()
    state = json.loads(Path(args.state).read_text()) if args.state and Path(args.state).exists() else {}
    ticket, key = Path(args.ticket).read_text().strip(), read_device_key(args.device_key)
    try:
        with Link(args.url, args.ca, args.name, ticket, key, topics=getattr(args, "topic", ()), state=state) as link:
            listen(link, args) if args.command == "listen" else send(link, args)
    finally:
        if args.state:
            Path(args.state).write_text(json.dumps(state))


def listen(link, args):
    link.timeout_s = args.timeout
    if link.welcome.get("gap"):
        print(json.dumps({"gap": True}), flush=True)
    shown = 0
    while not args.count or shown < args.count:
        push = link.push()
        push["payload"] = bytes.fromhex(push.get("payload", "")).decode(errors="replace")
        print(json.dumps(push), flush=True)
        shown += 1
    link.acknowledge()


def send(link, args):
    data = getattr(args, "data", "")
    body = Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()
    headers = [tuple(part.strip() for part in header.split(":", 1)) for header in args.header]
    answer = link.request(args.command.upper(), args.target, [(name.lower(), value) for name, value in headers], body)
    if args.include:
        lines = [f"status: {answer['status']}", *(f"{name}: {value}" for name, value in answer["headers"]), "", ""]
        sys.stdout.write("\n".join(lines))
        sys.stdout.flush()
    sys.stdout.buffer.write(answer["body"])


if __name__ == "__main__":
    main()
