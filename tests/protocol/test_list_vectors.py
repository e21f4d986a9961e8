"""Everything in docs/protocol/list-vectors.json, judged by code that shares nothing with the project."""

import json

import pytest
from access_list import Refused, rules, slot, user_hash, verify
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from decoder import ROOT, message

VECTORS = json.loads((ROOT / "docs/protocol/list-vectors.json").read_text())
KEYS = {key["id"]: key["public"] for key in VECTORS["trusted_keys"]}


def test_the_published_seeds_are_those_of_the_trusted_keys():
    for key in VECTORS["trusted_keys"]:
        seed = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key["seed"]))
        assert seed.public_key().public_bytes_raw().hex() == key["public"]
    assert VECTORS["context"] == "ropeway list v1"


@pytest.mark.parametrize("vector", VECTORS["lists"], ids=lambda vector: vector["why"])
def test_a_list_is_believed_or_refused_for_the_reason_given(vector):
    document = bytes.fromhex(vector["bytes"])
    if "error" in vector:
        with pytest.raises(Refused) as refused:
            verify(document, KEYS, vector["wall_ms"], vector["newest_epoch_ms"])
        assert refused.value.args[0] == vector["error"]
    else:
        found = verify(document, KEYS, vector["wall_ms"], vector["newest_epoch_ms"])
        assert found == (vector["list"], vector["permissions"])


@pytest.mark.parametrize("vector", VECTORS["policies"], ids=lambda vector: vector["bytes"][:16])
def test_a_policy_is_read_and_its_rules_are_found(vector):
    policy = message("Policy", bytes.fromhex(vector["bytes"]))
    assert policy == vector["policy"]
    for lookup in vector["lookups"]:
        assert rules(policy, lookup["host"], lookup["path"]) == lookup["rules"], lookup


@pytest.mark.parametrize("vector", VECTORS["slots"], ids=lambda vector: vector["user"])
def test_a_user_has_the_slot_of_their_hash(vector):
    assert (user_hash(vector["user"]), slot(user_hash(vector["user"]))) == (vector["hash"], vector["slot"])
