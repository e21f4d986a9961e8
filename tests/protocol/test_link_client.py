"""The WebSocket client that tests of the gateway use, against a gateway of a few lines."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from decoder import message, varint
from fake_gateway import FakeGateway
from fields import Blocks
from link_client import Link, Refused, Reset, read_device_key, write_block, write_message, write_varint


@pytest.fixture
def device():
    return Ed25519PrivateKey.generate()


@pytest.fixture
def gateway(tmp_path, device):
    gateway = FakeGateway(tmp_path, device.public_key())
    yield gateway
    gateway.close()
    assert gateway.error is None


@pytest.fixture
def ticket():
    return "head." + base64.urlsafe_b64encode(json.dumps({"aud": "shop"}).encode()).decode().rstrip("=") + ".signature"


def push(number):
    return {"sequence": number, "message_id": f"m-{number}", "payload": b"snow", "content_type": "text/plain"}


def test_what_is_written_is_read_back():
    for value in (0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1):
        assert varint(write_varint(value), 0) == (value, len(write_varint(value)))
    values = {"sequence": 300, "message_id": "ü", "payload": b"\0", "redelivered": True}
    assert message("Push", write_message("Push", **values)) == {**values, "payload": "00"}
    fields = [[":status", "200"], ["x-short", ""], ["x-long", "a" * 20_000]]
    assert Blocks().decode("RESPONSE", write_block(fields)) == fields


def test_requests_cross_with_bodies_beyond_the_credit_and_trailers(gateway, device, ticket):
    link = Link(gateway.url, gateway.ca, "localhost", ticket, device)
    body = bytes(range(256)) * 40
    answer = link.request("POST", "https://api.test/echo", [("content-type", "text/plain")], body)
    assert (answer["status"], answer["body"], answer["trailers"]) == (200, body, [["x-checksum", "00"]])
    answer = link.request("GET", "https://api.test/")
    assert (len(answer["body"]), answer["headers"]) == (5 * 65536, [["x-long", "v" * 300]])
    link.close()
    [hello] = gateway.hellos
    assert (hello["app"], hello["gateway"], len(hello["nonce"])) == ("shop", "localhost", 32)


def test_a_reset_and_a_refusal_are_named(gateway, device, ticket):
    link = Link(gateway.url, gateway.ca, "localhost", ticket, device)
    with pytest.raises(Reset, match="RESET_CODE_UPSTREAM_CUT"):
        link.request("GET", "https://api.test/reset")
    link.close()
    with pytest.raises(Refused, match="REFUSE_CODE_BAD_SIGNATURE"):
        Link(gateway.url, gateway.ca, "localhost", ticket, Ed25519PrivateKey.generate())


def test_a_push_is_acknowledged_once_it_was_shown_and_the_next_link_goes_on_behind_it(gateway, device, ticket):
    gateway.push_after_welcome = [push(1), push(2)]
    state = {}
    link = Link(gateway.url, gateway.ca, "localhost", ticket, device, topics=["news"], state=state)
    assert [link.push()["message_id"] for _ in range(2)] == ["m-1", "m-2"]
    link.request("GET", "https://api.test/echo")
    assert gateway.acked == [1]
    link.close()
    gateway.push_after_welcome = [{**push(3), "message_id": "m-1"}, push(5)]
    link = Link(gateway.url, gateway.ca, "localhost", ticket, device, state=state)
    assert (link.push()["message_id"], state["push_sequence"]) == ("m-5", 5), "m-1 was shown before"
    link.close()
    assert (gateway.hellos[1]["push_sequence"], gateway.hellos[1]["resume"]) == (2, b"cookie".hex())


def test_the_command_line_prints_a_body_and_pushes(gateway, device, ticket, tmp_path):
    pem = device.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "device.pem").write_bytes(pem)
    (tmp_path / "ticket").write_text(ticket + "\n")
    gateway.push_after_welcome = [push(1)]

    def run(*command):
        program = [sys.executable, Path(__file__).with_name("link_client.py")]
        options = ["--url", gateway.url, "--ca", gateway.ca, "--name", "localhost", "--ticket", tmp_path / "ticket"]
        return subprocess.check_output([*program, *options, "--device-key", tmp_path / "device.pem", *command], timeout=30)

    assert run("post", "https://api.test/echo", "--data", "hello") == b"hello"
    assert run("get", "-i", "https://api.test/echo") == b"status: 200\nx-long: " + b"v" * 300 + b"\n\n"
    [line] = run("listen", "--count", "1").splitlines()
    assert (json.loads(line)["message_id"], json.loads(line)["payload"]) == ("m-1", "snow")


def test_a_device_key_is_read_in_any_form(device, tmp_path):
    raw = device.private_bytes_raw()
    second_version = bytes.fromhex("3053020101300506032b657004220420") + raw + bytes.fromhex("a123032100") + device.public_key().public_bytes_raw()
    pem = b"-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(second_version) + b"-----END PRIVATE KEY-----\n"
    for form in (raw, raw.hex().encode() + b"\n", pem):
        (tmp_path / "key").write_bytes(form)
        assert read_device_key(tmp_path / "key").private_bytes_raw() == raw
