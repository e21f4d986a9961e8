"""Decodes link protocol v1 from its documents alone: docs/protocol/ and the protobuf schema, none of the project's code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROTO = "".join((ROOT / "crates/core/proto" / name).read_text() for name in ("ropeway.proto", "list.proto"))
LINK = (ROOT / "docs/protocol/link-v1.md").read_text().split("| number | kind |")[1]

KINDS = {int(number, 16): kind for number, kind in re.findall(r"^\| (0x[0-9a-f]{2}) \| ([A-Z]+) \|", LINK, re.M)}
PAYLOADS = dict(re.findall(r"^\| 0x[0-9a-f]{2} \| ([A-Z]+) \| [^|]+ \| `(\w+)` \|", LINK, re.M))
FLAGS = {1: "END", 2: "IGNORABLE"}
MESSAGES = {
    name: {
        int(n): (field, kind, label == "repeated ")
        for label, kind, field, n in re.findall(r"^  (repeated |optional )?(\w+) (\w+) = (\d+);", body, re.M)
    }
    for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", PROTO, re.M | re.S)
}
# Fields that say by being there at all that they are meant, defaults too.
OPTIONAL = {
    (name, field)
    for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", PROTO, re.M | re.S)
    for field in re.findall(r"^  optional \w+ (\w+) =", body, re.M)
}
ENUMS = {
    name: {int(n): value for value, n in re.findall(r"^  (\w+) = (\d+);", body, re.M)}
    for name, body in re.findall(r"^enum (\w+) \{(.*?)^\}", PROTO, re.M | re.S)
}


class ProtocolError(Exception):
    """Bytes that break the protocol; the first argument is the name of the error."""


def varint(data, at):
    """Returns the QUIC varint at `at` and where it ends, or `None` if it is cut."""
    length = 1 << (data[at] >> 6) if at < len(data) else 1
    if at + length > len(data):
        return None
    return int.from_bytes(data[at : at + length]) & ((1 << (8 * length - 2)) - 1), at + length


def frames(data, payload_bytes_max=65536):
    """Yields (kind, flags, channel, payload) of every known frame of a whole stream."""
    at = 0
    while at < len(data):
        kind = KINDS.get(data[at])
        if len(data) < at + 2:
            raise ProtocolError("truncated_frame")
        if kind is None and not data[at + 1] & 2:
            raise ProtocolError("unknown_kind")
        channel = varint(data, at + 2)
        length = channel and varint(data, channel[1])
        if length and length[0] > payload_bytes_max:
            raise ProtocolError("oversized_frame")
        if not length or length[1] + length[0] > len(data):
            raise ProtocolError("truncated_frame")
        flags, at, start = data[at + 1], length[1] + length[0], length[1]
        if kind:
            yield kind, [name for bit, name in FLAGS.items() if flags & bit], channel[0], data[start:at]


def message(name, data):
    """Decodes the protobuf message `name` into a dict without the fields that have their default."""

    def base128():
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise ProtocolError("bad_payload", "number")
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                return value

    found, at = {}, 0
    while at < len(data):
        tag = base128()
        field, kind, many = MESSAGES[name].get(tag >> 3, (None, None, False))
        if tag >> 3 == 0 or tag & 7 not in (0, 2) or field and (tag & 7 == 2) != (many or kind in (*MESSAGES, "bytes", "string")):
            raise ProtocolError("bad_payload", "tag")
        value = base128()
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
            if at > len(data):
                raise ProtocolError("bad_payload", "length")
        if field and many and tag & 7 == 2 and (kind == "uint64" or kind in ENUMS):
            outer, data, at, numbers = (data, at), value, 0, []
            while at < len(data):
                numbers.append(base128())
            (data, at), found[field] = outer, found.get(field, []) + [scalar(kind, number) for number in numbers]
        elif field:
            value = scalar(kind, value)
            found[field] = found.get(field, []) + [value] if many else value
    defaults = ("", 0, False, [], *(values[0] for values in ENUMS.values()))
    return {field: value for field, value in found.items() if (name, field) in OPTIONAL or value not in defaults}


def scalar(kind, value):
    """Turns what stands in a field into what it means."""
    if kind in MESSAGES:
        return message(kind, value)
    if kind == "string":
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ProtocolError("bad_payload", "string") from None
    if kind in ENUMS:
        return ENUMS[kind].get(value, value)
    return value.hex() if kind == "bytes" else bool(value) if kind == "bool" else value
