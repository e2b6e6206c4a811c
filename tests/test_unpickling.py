"""Texts are read out of pickles without running them; every other pickle is refused and does nothing."""

from __future__ import annotations

import base64
import io
import os
import pickle
import struct
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from trl_mentor.tasks.unpickling import packed_text, pickled_text

TRAP = Path("trap")
"""What a pickle would leave in the working directory if it were run."""


class Call:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


class State:
    """Pickles as an object with a state."""

    def __init__(self) -> None:
        self.name = "x"


class Persistent(pickle.Pickler):
    def persistent_id(self, thing: Any) -> str | None:
        return "id" if isinstance(thing, State) else None


def persistent(protocol: int) -> bytes:
    written = io.BytesIO()
    Persistent(written, protocol).dump(State())
    return written.getvalue()


def bomb() -> bytes:
    """A list of lists of lists: a billion elements, were it run and looked at."""
    nested: Any = "x"
    for _ in range(9):
        nested = [nested] * 10
    return pickle.dumps(nested)


def text_opcode(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("text", ["", "[]", "é\u4e2d\U0001f600\ud800\r\n\0", "long " * 40_000])
def test_a_text_comes_back_as_pickle_itself_reads_it(protocol, text):
    data = pickle.dumps(text, protocol)
    assert pickled_text(data) == packed_text(pack(data)) == pickle.loads(data) == text


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Call(os.system, f"touch {TRAP}")),
        pickle.dumps(Call(os.system, f"touch {TRAP}"), 0),
        pickle.dumps(["[]", Call(eval, f"open('{TRAP}', 'w')")]),
        pickle.dumps(Call(exec, f"open('{TRAP}', 'w')"), 2),
        b"(S'touch trap'\nios\nsystem\n.",
        b"cos\nsystem\n(S'touch trap'\ntR.",
        b"(cos\nsystem\nS'touch trap'\no.",
        text_opcode("os") + text_opcode("system") + b"\x93" + text_opcode("touch trap") + b"\x85R.",
        text_opcode("[]") + b"cos\nsystem\n" + text_opcode("touch trap") + b"\x85R0.",
        pickle.dumps(State()),
        pickle.dumps(State(), 2),
        pickle.dumps(OrderedDict(a=1)),
        pickle.dumps(pickle.loads),
        persistent(0),
        persistent(4),
        b"\x80\x02\x82\x01.",
        b"\x80\x04\x84\xff\xff\xff\x7f.",
    ],
)
def test_a_pickle_that_calls_or_builds_something_is_refused_and_does_nothing(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    for read in (lambda: pickled_text(data), lambda: packed_text(pack(data))):
        with pytest.raises(ValueError, match="refused a pickle"):
            read()
    assert not TRAP.exists()


@pytest.mark.parametrize(
    "data",
    [
        bomb(),
        b"\x80\x05\x96" + struct.pack("<Q", 10 * 2**30) + b"x.",
        b"\x80\x05\x8d" + struct.pack("<Q", 10 * 2**30) + b"x.",
        b"\x80\x05\x8e" + struct.pack("<Q", 2**64 - 1) + b"x.",
        b"\x80\x04\x8b" + struct.pack("<i", 2**31 - 1) + b"1.",
        b"\x80\x04\x8b" + struct.pack("<i", -1) + b".",
        text_opcode("[]") + b"2" * 1000 + b".",
        b"]" + b"2" * 1000 + b"." * 3,
        b"(" * 100_000 + b"t" * 100_000 + b".",
        b"I" + b"9" * 100_000 + b"\n.",
        b"h\x00.",
        b"0.",
        b".",
        b"",
        b"not a pickle",
        text_opcode("[]"),
        text_opcode("[]")[:-1],
        text_opcode("[]") + text_opcode("[]") + b".",
        text_opcode("[]") + text_opcode("[]") + b"0.",
        text_opcode("[]") + b"0.",
        text_opcode("\udcff".encode("utf-8", "surrogatepass").decode("latin-1"))[:-3] + b"\xff\xfe.",
        pickle.dumps(["a"]),
        pickle.dumps({"a": 1}),
        pickle.dumps(b"[]"),
        pickle.dumps(bytearray(b"[]")),
        pickle.dumps(None),
        pickle.dumps(12),
        pickle.dumps("[]", 0),
    ],
)
def test_whatever_is_not_exactly_one_text_is_refused(data):
    with pytest.raises(ValueError, match="refused a pickle"):
        pickled_text(data)


def test_notes_for_later_instructions_reserve_no_memory():
    assert pickled_text(text_opcode("[]") + b"r" + struct.pack("<I", 2**32 - 1) + b".") == "[]"


def test_what_unpacks_to_more_than_the_bound_is_refused_before_it_is_unpacked():
    zeros = pack(pickle.dumps("0" * 10_000_000))
    assert len(zeros) < 20_000
    with pytest.raises(ValueError, match="larger than 1,000,000 bytes when unpacked"):
        packed_text(zeros, max_bytes=1_000_000)


@pytest.mark.parametrize(
    ("packed", "complaint"),
    [
        ("no base64!", "not base64 of zlib"),
        ("é", "not base64 of zlib"),
        (base64.b64encode(b"no zlib").decode(), "not base64 of zlib"),
        (base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-6]).decode(), "ends too early"),
        ("", "ends too early"),
    ],
)
def test_what_is_not_packed_like_this_is_refused(packed, complaint):
    with pytest.raises(ValueError, match=complaint):
        packed_text(packed)
