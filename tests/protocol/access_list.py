"""Believes or refuses access lists, and looks rules up in policies, from docs/protocol/access-list.md alone."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from decoder import ProtocolError, message

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
LADDER = [["link", 3], ["name", 1], ["address", 2], ["pipe", 2], ["plain", 1], ["original", 1]]
RANGES = {"server_time_ms": (0, 600_000), "concurrency_max": (1, 1_000)}
M64 = (1 << 64) - 1


class Refused(Exception):
    """A list that is not to be believed; the argument is the name of the reason."""


def verify(document, keys, wall_ms, newest_epoch_ms):
    """Returns the list of a document and whether its permissions hold; `keys` are the trusted ones by their names."""
    try:
        signed = message("SignedList", document)
    except ProtocolError:
        raise Refused("malformed") from None
    key = keys.get(signed.get("key_id", ""))
    if key is None:
        raise Refused("unknown_key")
    payload = bytes.fromhex(signed.get("list", ""))
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signed.get("signature", "")), b"ropeway list v1\0" + payload)
    except InvalidSignature:
        raise Refused("bad_signature") from None
    try:
        found = message("AccessList", payload)
    except ProtocolError:
        raise Refused("malformed") from None
    epoch_ms, expires_ms = found.get("epoch_ms", 0), found.get("expires_ms", 0)
    if epoch_ms == 0 or expires_ms < epoch_ms:
        raise Refused("malformed")
    if epoch_ms < newest_epoch_ms - HOUR_MS:
        raise Refused("outdated")
    if epoch_ms > wall_ms + 600_000:
        raise Refused("future")
    if wall_ms > expires_ms + 30 * DAY_MS:
        raise Refused("expired")
    return found, wall_ms <= expires_ms


def rules(policy, host, path):
    """Returns what a policy says of a request."""
    host, path, best, rank = host.rstrip(".").lower(), path.partition("?")[0], {}, None
    for route in policy.get("routes", []):
        prefix = route.get("path_prefix", "/").rstrip("/")
        below = path == prefix or path.startswith(prefix + "/") or not prefix
        whole = route["host"] == host
        if below and (whole or route["host"].startswith("*") and host.endswith(route["host"][1:])):
            fits = (whole, 0 if whole else len(route["host"]), len(prefix))
            if rank is None or fits > rank:
                best, rank = route, fits
    found = {"coalesce": True, "batch": False, "plain_http": False, "idempotency_keys": False, **dict.fromkeys(RANGES), **best}
    for field, (least, most) in RANGES.items():
        found[field] = None if found[field] is None else min(max(found[field], least), most)
    ladder = {}
    for rung in found.pop("ladder", []):
        ladder.setdefault(rung["way"].removeprefix("WAY_").lower(), min(rung.get("tries", 1), 3))
    rungs = [[way, tries] for way, tries in ladder.items()] or LADDER
    found["ladder"] = [[way, tries] for way, tries in rungs if tries and (way != "plain" or found["plain_http"])]
    return {key: value for key, value in found.items() if key not in ("host", "path_prefix")}


def user_hash(user):
    """FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in user.encode():
        value = (value ^ byte) * 0x100000001B3 & M64
    return value


def slot(value):
    """The upper 16 bits, once they were mixed by MurmurHash3's fmix64."""
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & M64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & M64
    return (value ^ value >> 33) >> 48
