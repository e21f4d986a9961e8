"""Everything in docs/protocol/vectors.json, read by a decoder that shares no code with the project."""

import base64
import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from decoder import KINDS, PAYLOADS, ROOT, ProtocolError, frames, message, varint
from fields import Blocks

VECTORS = json.loads((ROOT / "docs/protocol/vectors.json").read_text())
BLOCK_KINDS = ("REQUEST", "RESPONSE", "TRAILERS")


def describe(data, blocks, payload_bytes_max=65536):
    """Returns the frames of a stream as the vectors describe them."""
    described = []
    for kind, flags, channel, payload in frames(data, payload_bytes_max):
        frame = {"kind": kind, "flags": flags, "channel": channel}
        if kind in BLOCK_KINDS:
            frame["block"] = blocks.decode(kind, payload)
        elif kind in PAYLOADS:
            frame["message"] = message(PAYLOADS[kind], payload)
        else:
            frame["payload"] = payload.hex()
        described.append(frame)
    return described


def without(vector, *keys):
    return {key: value for key, value in vector.items() if key not in keys}


@pytest.mark.parametrize("vector", VECTORS["varints"], ids=lambda vector: vector["bytes"])
def test_a_varint_has_its_value(vector):
    data = bytes.fromhex(vector["bytes"])
    assert varint(data, 0) == (vector["value"], len(data))


@pytest.mark.parametrize("data", VECTORS["varints_truncated"])
def test_a_cut_varint_has_none(data):
    assert varint(bytes.fromhex(data), 0) is None


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=lambda vector: f"{vector['kind']}-{vector['bytes'][:16]}")
def test_a_frame_is_what_it_is_described_as(vector):
    assert describe(bytes.fromhex(vector["bytes"]), Blocks()) == [without(vector, "bytes")]


def test_there_is_a_frame_of_every_kind():
    assert {vector["kind"] for vector in VECTORS["frames"]} == set(KINDS.values())


@pytest.mark.parametrize("vector", VECTORS["streams"], ids=lambda vector: vector["why"])
def test_a_stream_holds_what_a_receiver_knows_of_it(vector):
    assert describe(bytes.fromhex(vector["bytes"]), Blocks()) == vector["frames"]


@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=lambda vector: vector["why"])
def test_an_invalid_stream_ends_in_the_error_of_its_name(vector):
    with pytest.raises(ProtocolError) as error:
        describe(bytes.fromhex(vector["bytes"]), Blocks(), vector["payload_bytes_max"])
    assert error.value.args[0] == vector["error"]


def test_hello_and_proof_are_signed_by_the_device_and_the_ticket_by_its_issuer():
    vector = VECTORS["hello"]
    device = Ed25519PublicKey.from_public_bytes(bytes.fromhex(VECTORS["keys"]["device"]["public"]))
    seed = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(VECTORS["keys"]["device"]["seed"]))
    assert seed.public_key() == device
    [frame] = describe(bytes.fromhex(vector["frame"]), Blocks())
    hello = bytes.fromhex(frame["message"]["hello"])
    signature = bytes.fromhex(frame["message"]["signature"])
    device.verify(signature, b"ropeway hello v1\0" + hello)
    assert seed.sign(b"ropeway hello v1\0" + hello) == signature
    assert message("Hello", hello) == vector["hello"]
    for proof in vector["proofs"]:
        [frame] = describe(bytes.fromhex(proof["frame"]), Blocks())
        device.verify(bytes.fromhex(frame["message"]["signature"]), b"ropeway proof v1\0" + bytes.fromhex(proof["binding"]))
    with pytest.raises(InvalidSignature):
        device.verify(signature, b"ropeway proof v1\0" + hello)
    signed, _, signature = vector["hello"]["ticket"].rpartition(".")
    issuer = Ed25519PublicKey.from_public_bytes(bytes.fromhex(vector["ticket_issuer"]))
    issuer.verify(base64.urlsafe_b64decode(signature + "=="), signed.encode())
    claims = json.loads(base64.urlsafe_b64decode(signed.split(".")[1] + "=="))
    assert base64.urlsafe_b64decode(claims["cnf"]["jwk"]["x"] + "==") == device.public_bytes_raw()


def test_a_cookie_is_session_generation_and_secret_and_the_last_two_generations_are_taken():
    current = VECTORS["cookies"][-1]["generation"]
    for vector in VECTORS["cookies"]:
        data = bytes.fromhex(vector["bytes"])
        assert (int.from_bytes(data[:8]), int.from_bytes(data[8:12]), data[12:].hex()) == (
            vector["session"], vector["generation"], vector["secret"],
        )  # fmt: skip
        assert vector["accepted"] == (0 <= current - vector["generation"] <= 1)


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("direction", [0, 1])
def test_field_blocks_that_follow_each_other_are_what_they_are_described_as(order, direction):
    blocks = Blocks()
    for vector in VECTORS["blocks"][order][direction]["blocks"]:
        assert blocks.decode(vector["kind"], bytes.fromhex(vector["block"])) == vector["fields"]


@pytest.mark.parametrize("link", VECTORS["session"], ids=["first", "resumed"])
def test_a_session_is_read_frame_by_frame(link):
    blocks = {"client": Blocks(), "gateway": Blocks()}
    for vector in link["frames"]:
        [frame] = describe(bytes.fromhex(vector["bytes"]), blocks[vector["from"]])
        assert frame == without(vector, "bytes", "from", "hello")
        if "hello" in vector:
            assert message("Hello", bytes.fromhex(frame["message"]["hello"])) == vector["hello"]
