"""The server that the peers are tested against: origin and front on loopback, with a certificate made for the occasion."""

import datetime
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HERE = Path(__file__).resolve().parent.parent


@dataclass
class Server:
    """Where the server is, whom to trust, and what was executed."""

    url: str
    ca: Path
    log: Path

    def executed(self, name: str) -> list[dict]:
        """Gives the log lines of one request."""
        return [line for line in map(json.loads, self.log.read_text().splitlines()) if line["id"] == name]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Starts origin and front."""
    folder = tmp_path_factory.mktemp("server")
    ca, cert, key = certificates(folder)
    back, port = free_port(), free_port()
    log = folder / "executed.jsonl"
    tls = ["--cert", str(cert), "--key", str(key)]
    front = ["--bind", f"127.0.0.1:{port}", "--bind", f"[::1]:{port}", "--upstream", f"http://127.0.0.1:{back}"]
    processes = [
        start("origin.py", "--bind", f"127.0.0.1:{back}", "--log", str(log)),
        start("front.py", *front, *tls),
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "listening\n"
        yield Server(f"https://localhost:{port}", ca, log)
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def start(program: str, *args: str) -> subprocess.Popen:
    """Starts one of the servers, which writes a line once it listens."""
    return subprocess.Popen([sys.executable, str(HERE / program), *args], stdout=subprocess.PIPE, text=True)


def free_port() -> int:
    """Gives a port that is free for TCP and UDP."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            try:
                udp.bind(tcp.getsockname())
            except OSError:
                continue
            return tcp.getsockname()[1]


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Makes an authority, and a certificate chain with its key for localhost."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    ca_cert = (
        begin(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    cert = (
        begin(ca_name, name, key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    paths = folder / "ca.pem", folder / "server.pem", folder / "server.key"
    paths[0].write_bytes(ca_cert.public_bytes(pem))
    # The authority goes along, as an intermediate does elsewhere; Chromium's adapter knows the chain by it.
    paths[1].write_bytes(cert.public_bytes(pem) + ca_cert.public_bytes(pem))
    private = serialization.PrivateFormat.PKCS8
    paths[2].write_bytes(key.private_bytes(pem, private, serialization.NoEncryption()))
    return paths


def begin(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    """Begins a certificate that is good from yesterday for a week."""
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + 7 * day)
