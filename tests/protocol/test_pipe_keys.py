"""The keys that gateways derive for their sealed pipes, from docs/protocol/pipe.md alone."""

import hashlib
import hmac
import re

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from decoder import ROOT

PAGE = (ROOT / "docs/protocol/pipe.md").read_text()
BLOCKS = [re.sub(r"\s", "", block) for block in re.findall(r"```\n(.*?)```", PAGE.partition("## Vectors")[2], re.S)]
CONFIG, SEED, DERIVED_CONFIG = BLOCKS[0], BLOCKS[2], BLOCKS[3]
SUITES = "00080001000100010003"


def extract(salt, key):
    """RFC 5869 section 2.2."""
    return hmac.digest(salt or bytes(32), key, hashlib.sha256)


def expand(key, info):
    """RFC 5869 section 2.3, for 32 bytes."""
    return hmac.digest(key, info + b"\1", hashlib.sha256)


def derived(secret, name, day):
    """What the key of a pipe and a day follows from."""
    return expand(extract(b"", secret), b"ropeway pipe key v1\0" + name.encode() + b"\0" + day.to_bytes(8, "big"))


def config(number, seed):
    """A key configuration, by DeriveKeyPair of RFC 9180 section 7.1.3 for DHKEM(X25519, HKDF-SHA256)."""
    label = b"HPKE-v1KEM\0\x20"
    private = expand(extract(b"", label + b"dkp_prk" + seed), b"\0\x20" + label + b"sk")
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return f"{number:02x}0020{public.hex()}{SUITES}"


def test_a_configuration_follows_from_the_seed_of_its_key():
    assert config(5, bytes([7]) * 32) == CONFIG


def test_the_key_of_a_pipe_and_a_day_follows_from_the_shared_secret():
    seed = derived(bytes(range(32)), "north.example", 20700)
    assert (seed.hex(), config(20700 % 256, seed)) == (SEED, DERIVED_CONFIG)
    others = [derived(bytes(range(32)), name, day) for name, day in (("north.example", 20701), ("south.example", 20700))]
    assert len({seed, *others}) == 3
