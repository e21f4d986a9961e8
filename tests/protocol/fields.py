"""Decodes field blocks from docs/protocol/fields.md alone."""

import re

from decoder import ROOT, ProtocolError

FIELDS = (ROOT / "docs/protocol/fields.md").read_text()
NAMES = [None, *re.findall(r"^ *\d+ (\S+)$", FIELDS.split("```names")[1].split("```")[0], re.M)]
STATIC = [None, *re.findall(r"^ *\d+ (:?[^:\n]+):(?: (.*))?$", FIELDS.split("```fields")[1].split("```")[0], re.M)]
# RFC 7541 appendix B: the code is canonical, so the lengths of the codes are all there is to know. 256 ends a string.
CODE_BITS = """13 23 28*7 24 30 28*2 30 28*8 30 28*9 6 10*2 12 13 6 8 11 10*2 8 11 8 6*3 5*3 6*7 7 8 15 6 12 10 13 6 7*22 8 7 8 13 19 13
14 6 15 5 6 5 6 5 6*3 5 7*2 6*3 5 6 7 6 5*2 6 7*5 15 11 14 13 28 20 22 20*2 22*3 23 22 23*5 24 23 24*2 22 23 24 23*4 21 22 23 22 23*2
24 22 21 20 22*2 23*2 21 23 22*2 24 21 22 23*2 21*2 22 21 23 22 23*2 20 22*3 23 22*2 23 26*2 20 19 22 23 22 25 26*3 27*2 26 24 25 19
21 26 27*2 26 27 24 21*2 26*2 28 27*3 20 24 20 21 22 21*2 23 22*2 25*2 24*2 26 23 26 27 26*2 27*5 28 27*5 26 30"""


def huffman_codes():
    """Returns a dict from (length, code) to the byte it stands for."""
    runs = (run.split("*") for run in CODE_BITS.split())
    bits = [int(run[0]) for run in runs for _ in range(int(run[1]) if len(run) > 1 else 1)]
    codes, code, before = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(bits)):
        code <<= length - before
        codes[length, code], code, before = symbol, code + 1, length
    return codes


CODES = huffman_codes()


class Blocks:
    """Decodes the field blocks of one direction of a link."""

    def __init__(self):
        self.slots = [None] * 64

    def decode(self, kind, block):
        """Returns the fields of one block, each a list of name, value and perhaps "sensitive"."""
        self.block, self.at, fields = block, 0, []
        slot = self.byte()
        self.need(slot < 64)
        while self.at < len(block):
            first = self.byte()
            if first & 0x80:
                index = self.integer(first, 7)
                self.need(0 < index < len(STATIC))
                fields.append(list(STATIC[index]))
            elif first & 0x40:
                self.need(self.slots[first & 63])
                fields.append(list(self.slots[first & 63]))
            else:
                reference = self.integer(first, 5 if first & 0x20 else 4)
                if reference >= len(NAMES):
                    self.need(reference < len(NAMES) + 64 and self.slots[reference - len(NAMES)])
                name = self.string() if not reference else NAMES[reference] if reference < len(NAMES) else self.slots[reference - len(NAMES)][0]
                fields.append([name, self.string()])
                if first & 0x20:
                    self.slots[slot], slot = tuple(fields[-1]), (slot + 1) % 64
                elif not first & 0x10:
                    fields[-1].append("sensitive")
        self.check(kind, fields)
        return fields

    def check(self, kind, fields):
        """Refuses what the section "Message" of fields.md does not allow."""
        pseudo = {"REQUEST": [":authority", ":method", ":path", ":scheme"], "RESPONSE": [":status"], "TRAILERS": []}[kind]
        names = [field[0] for field in fields]
        self.need(sorted(names[: len(pseudo)]) == pseudo and not any(name.startswith(":") for name in names[len(pseudo) :]))
        self.need(all(name and name == name.lower() for name in names))
        values = {field[0]: field[1] for field in fields}
        self.need(values.get(":method") != "CONNECT" and "@" not in values.get(":authority", "") and values.get("te", "trailers") == "trailers")
        self.need(not {"connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"} & set(names))
        self.need(len(fields) <= 256 and sum(len(field[0]) + len(field[1]) + 32 for field in fields) <= 65536)

    def need(self, holds):
        if not holds:
            raise ProtocolError("bad_fields")

    def byte(self):
        self.need(self.at < len(self.block))
        self.at += 1
        return self.block[self.at - 1]

    def integer(self, first, prefix):
        value = mask = (1 << prefix) - 1
        if first & mask < mask:
            return first & mask
        for shift in (0, 7, 14):
            byte = self.byte()
            value += (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ProtocolError("bad_fields")

    def string(self):
        first = self.byte()
        length = self.integer(first, 7)
        self.need(self.at + length <= len(self.block))
        text, self.at = self.block[self.at : self.at + length], self.at + length
        if not first & 0x80:
            return text.decode("latin-1")
        plain, code, bits = "", 0, 0
        for bit in "".join(f"{byte:08b}" for byte in text):
            code, bits = code << 1 | int(bit), bits + 1
            if (bits, code) in CODES:
                self.need(CODES[bits, code] < 256)
                plain, code, bits = plain + chr(CODES[bits, code]), 0, 0
        self.need(bits < 8 and code == (1 << bits) - 1)
        return plain
