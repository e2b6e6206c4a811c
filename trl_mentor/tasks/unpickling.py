"""Texts out of pickles from outside, read without ever running one.

A pickle is a program for a small machine that can call anything. One that holds nothing but a text needs a handful of
instructions; those are read off, and at the first other one the pickle is refused.
"""

from __future__ import annotations

import base64
import pickletools
import zlib

from trl_mentor.programs.store import MOST_BYTES

_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_WITHOUT_EFFECT = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"}
"""Version, lengths, notes for later instructions (none of which is allowed), and the end."""


def packed_text(packed: str, *, max_bytes: int = MOST_BYTES) -> str:
    """The text in base64 of zlib of a pickle, as LiveCodeBench packs one.

    Raises `ValueError` for anything that is not so packed, is larger than `max_bytes`, or holds more than a text.
    """
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(base64.b64decode(packed, validate=True), max_bytes)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"not base64 of zlib: {error}") from error
    if unpacker.unconsumed_tail:
        raise ValueError(f"larger than {max_bytes:,} bytes when unpacked")
    if not unpacker.eof:
        raise ValueError("the packed data ends too early")
    return pickled_text(data)


def pickled_text(pickle: bytes) -> str:
    """The text that a pickle consists of. Raises `ValueError` for every other pickle; nothing of it is executed."""
    found: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(pickle):
            if opcode.name in _TEXTS:
                found.append(str(argument))
            elif opcode.name not in _WITHOUT_EFFECT:
                raise ValueError(f"it has the instruction {opcode.name}")
    except (ValueError, OverflowError, MemoryError) as error:
        raise ValueError(f"refused a pickle that is more than one text: {error}") from error
    if len(found) != 1:
        raise ValueError(f"refused a pickle that is more than one text: it has {len(found)}")
    return found[0]
