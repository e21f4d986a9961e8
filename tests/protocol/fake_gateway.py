"""A gateway of a few lines, to test the test client before and apart from the real one."""

import datetime
import ipaddress
import ssl
import threading

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from decoder import frames, message
from fields import Blocks
from link_client import END, write_block, write_frame, write_message
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

CHALLENGE = bytes(range(32))


def make_certificate(folder):
    """Writes a certificate that is its own authority and its key; returns their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(hours=1))
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256())
    pem, pkcs8, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "ca.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, plain))
    return folder / "ca.pem", folder / "key.pem"


class FakeGateway:
    """Serves links on a loopback port: `/echo` answers with the request's body, anything else with 5 pieces of 100 KiB."""

    def __init__(self, folder, device, channel_credit=1000, link_credit=3000):
        self.device, self.channel_credit, self.link_credit = device, channel_credit, link_credit
        self.push_after_welcome, self.hellos, self.acked, self.error, self.unread = [], [], [], None, 0
        self.ca, key = make_certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self.server = serve(self.link, "127.0.0.1", 0, ssl=context, subprotocols=["ropeway.v1"], compression=None)
        self.url = f"wss://127.0.0.1:{self.server.socket.getsockname()[1]}/.ropeway/link"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()

    def link(self, connection):
        try:
            connection.send(write_frame("PROOF", write_message("Proof", challenge=CHALLENGE)))
            received = (frame for data in connection for frame in frames(data))
            signed = message("SignedHello", next(received)[3])
            proof = message("Proof", next(received)[3])
            hello = bytes.fromhex(signed["hello"])
            try:
                self.device.verify(bytes.fromhex(signed["signature"]), b"ropeway hello v1\0" + hello)
                self.device.verify(bytes.fromhex(proof["signature"]), b"ropeway proof v1\0" + CHALLENGE)
            except InvalidSignature:
                connection.send(write_frame("REFUSE", write_message("Refuse", code=1, detail="not this device")))
                return
            self.hellos.append(message("Hello", hello))
            connection.send(write_frame("WELCOME", write_message(
                "Welcome", resume=b"cookie", resumed="resume" in self.hellos[-1], channel_credit=self.channel_credit,
                link_credit=self.link_credit, push_sequence=self.hellos[-1].get("push_sequence", 0), channels_max=256,
            )))  # fmt: skip
            for push in self.push_after_welcome:
                connection.send(write_frame("PUSH", write_message("Push", **push)))
            self.serve(connection, received)
        except ConnectionClosed:
            pass
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
            raise

    def serve(self, connection, received):
        blocks, bodies, paths, limits = Blocks(), {}, {}, {}
        for kind, flags, channel, payload in received:
            if kind == "REQUEST":
                paths[channel], bodies[channel] = dict(field[:2] for field in blocks.decode(kind, payload))[":path"], b""
                limits[channel] = self.channel_credit
            elif kind == "BODY":
                bodies[channel] += payload
                self.unread += len(payload)
                assert len(bodies[channel]) <= limits[channel] and self.unread <= self.link_credit
                if len(bodies[channel]) == limits[channel]:
                    limits[channel] += self.channel_credit
                    connection.send(write_frame("CREDIT", write_message("Credit", bytes=self.channel_credit), channel))
                if self.unread == self.link_credit:
                    connection.send(write_frame("CREDIT", write_message("Credit", bytes=self.unread)))
                    self.unread = 0
            elif kind == "ACK":
                self.acked.append(message("Ack", payload)["push_sequence"])
            elif kind == "CREDIT":
                continue
            if "END" in flags:
                self.answer(connection, channel, paths[channel], bodies[channel])

    def answer(self, connection, channel, path, body):
        if path == "/reset":
            connection.send(write_frame("RESET", write_message("Reset", code=7, detail="cut"), channel, END))
            return
        connection.send(write_frame("PING", b"are you there"))
        connection.send(write_frame("RESPONSE", write_block([(":status", "200"), ("x-long", "v" * 300)]), channel))
        for piece in [body] if path == "/echo" else [bytes([n]) * 65536 for n in range(5)]:
            connection.send(write_frame("BODY", piece, channel))
        connection.send(write_frame("TRAILERS", write_block([("x-checksum", "00")]), channel, END))
