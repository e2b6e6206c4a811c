"""The tests of a LiveCodeBench problem, from its packed fields to the column that the rewards for programs read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trl_mentor.programs.store import TestStore, write_whole
from trl_mentor.programs.tests import Case, ProgramTests, Style, parse_tests
from trl_mentor.tasks.fields import text
from trl_mentor.tasks.unpickling import packed_text

INLINE_CHARS = 16 * 1024
"""Of unpacked tests that stay in their row; larger ones lie in the store, as rows travel between processes."""

_FORMAT = b"1"
"""Of what this module makes of the fields; another one has everything unpacked anew."""


def read_tests(row: Mapping[str, Any]) -> str:
    """The `tests` column. Raises `ValueError` for tests in another form, of two kinds, or none.

    Unpacking all problems takes minutes, so what the large ones came to is noted beside the store, under a hash of
    the packed fields.
    """
    public, private, metadata = (text(row, name) for name in ("public_test_cases", "private_test_cases", "metadata"))
    if len(private) <= INLINE_CHARS // 4:
        return _column(public, private, metadata)
    store = TestStore()
    digest = hashlib.sha256(_FORMAT)
    for field in (public, private, metadata):
        digest.update(hashlib.sha256(field.encode("utf-8", "surrogatepass")).digest())
    note = store.folder / "unpacked" / f"{digest.hexdigest()}.json"
    noted = _noted(note, store)
    if noted is None:
        noted = _column(public, private, metadata)
        write_whole(note, noted.encode())
    return noted


def _noted(note: Path, store: TestStore) -> str | None:
    """What a note says, unless there is none or the store has lost what it speaks of."""
    try:
        content = note.read_text(encoding="utf-8")
        tests = parse_tests(content)
    except (OSError, ValueError):
        return None
    return None if tests.style is Style.STORED and tests.sha256 not in store else content


def _column(public: str, private: str, metadata: str) -> str:
    hidden = private if private.startswith("[") else packed_text(private)
    cases = [(case, False) for case in _cases(public, "public_test_cases")]
    cases += [(case, True) for case in _cases(hidden, "private_test_cases")]
    kinds = {case.get("testtype") for case, _ in cases}
    if kinds == {"stdin"}:
        tests = ProgramTests(
            Style.STDIN, tuple(Case(_text(case, "input"), _text(case, "output"), hide) for case, hide in cases)
        )
    elif kinds == {"functional"}:
        tests = ProgramTests(Style.CALL, tuple(_call(case, hide) for case, hide in cases), _function(metadata))
    else:
        raise ValueError(f"tests of the kinds {sorted(map(str, kinds))}, expected stdin or functional")
    large = len(public) + len(hidden) > INLINE_CHARS
    return (TestStore().put(tests) if large else tests).to_json()


def _cases(content: str, name: str) -> list[Mapping[str, Any]]:
    cases = _json(content, name)
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise ValueError(f"{name} is no list of tests")
    return cases


def _text(case: Mapping[str, Any], name: str) -> str:
    """A text of a test, which may be empty. Raises `ValueError` for anything else."""
    value = case.get(name)
    if not isinstance(value, str):
        raise ValueError(f"a test has an {name} of the type {type(value).__name__}, not a text")
    return value


def _call(case: Mapping[str, Any], hidden: bool) -> Case:
    """A call: each line of the input is one argument as JSON, the output one JSON value."""
    lines = [line for line in _text(case, "input").split("\n") if line.strip()]
    arguments = tuple(_json(line, "an argument of a test") for line in lines)
    return Case(arguments, _json(_text(case, "output"), "the output of a test"), hidden)


def _function(metadata: str) -> str:
    found = _json(metadata, "metadata")
    name = found.get("func_name") if isinstance(found, dict) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError("tests are calls and metadata names no function (func_name)")
    return name


def _json(content: str, name: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {str(error).splitlines()[0]:.80}") from None
