"""Fences, test records, their store, and the comparison of results: the parts that need no process."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from trl_mentor.programs.codec import TooLargeError, UnfitError, decode, encode, is_encoded
from trl_mentor.programs.compare import same_output, same_value, shown
from trl_mentor.programs.fences import program_of
from trl_mentor.programs.judging import judge_programs
from trl_mentor.programs.store import TestStore
from trl_mentor.programs.tests import Case, ProgramTests, Style, TestsError, parse_tests

ALL = [
    ProgramTests(Style.STDIN, (Case("1\r\n", "é\n", hidden=False), Case("", ""))),
    ProgramTests(Style.CALL, (Case(([1], "x", None), {"a": [1.5, True]}),), function="f"),
    ProgramTests(Style.ASSERTS, entry_point="f", program="assert f(1) == 2"),
    ProgramTests(Style.ASSERTS, entry_point="f", program="assert f(1) == 2", setup="import math"),
    ProgramTests(Style.STORED, sha256="0123456789abcdef" * 4),
]


@pytest.mark.parametrize("tests", ALL, ids=lambda tests: tests.style)
def test_tests_are_what_they_were_after_they_were_written(tests):
    assert parse_tests(tests.to_json()) == tests


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (None, "NoneType"),
        ("", "expected a JSON text"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "expected an object"),
        ('{"style": "other"}', "expected one of stdin, call, asserts, stored"),
        ('{"style": ["stdin"]}', "expected one of"),
        ('{"style": "stdin", "cases": []}', "at least one"),
        ('{"style": "stdin", "cases": [{"input": "x"}]}', "test 1"),
        ('{"style": "stdin", "cases": [{"input": "x", "output": 5}]}', "expected texts"),
        ('{"style": "stdin", "cases": [{"input": "x", "output": "y", "hidden": "no"}]}', "true or false"),
        ('{"style": "call", "function": "f", "cases": [{"input": 5, "output": 5}]}', "list of arguments"),
        ('{"style": "call", "cases": [{"input": [], "output": 5}]}', "function=None"),
        ('{"style": "call", "function": "a b", "cases": [{"input": [], "output": 5}]}', "expected a name"),
        ('{"style": "asserts", "entry_point": "f", "program": ""}', "program=''"),
        ('{"style": "asserts", "entry_point": "f", "program": "assert f()", "setup": 3}', "setup=3"),
        ('{"style": "stored", "sha256": "../../etc/passwd"}', "64 hexadecimal digits"),
    ],
)
def test_tests_that_cannot_be_read_say_what_is_wrong(cell, complaint):
    with pytest.raises(TestsError, match=complaint.replace("[", "\\[")):
        parse_tests(cell)
    (verdict,) = judge_programs(["x"], [cell])
    assert verdict.error is not None
    assert not verdict.right


def test_test_code_that_cannot_run_is_the_fault_of_the_data_set():
    broken = ["assert f(", "x = 5", "import os; os._exit(0)", "while True: pass", "assert f(lambda: 1) == 1"]
    cells = [ProgramTests(Style.ASSERTS, entry_point="f", program=one).to_json() for one in broken]
    verdicts = judge_programs(["def f(x):\n    return 1"] * len(cells), cells, seconds=1)
    assert ["do not compile" in str(verdicts[0].error), "run no assert" in str(verdicts[1].error)] == [True, True]
    assert [verdict.right for verdict in verdicts] == [False] * len(cells)
    assert "pass a function to the program" in str(verdicts[4].error)


CHECK = "def {name}(c):\n    assert c(1) == 1\n    assert c(2) == 2\n"


@pytest.mark.parametrize(
    "calls",
    [
        CHECK.format(name="check"),
        CHECK.format(name="check") + "    return None\n",
        CHECK.format(name="check") + "check(f)\n",
        CHECK.format(name="test_f") + "for _ in range(2):\n    test_f(f)\n",
    ],
)
def test_asserts_in_functions_count_where_they_run(calls):
    cells = [ProgramTests(Style.ASSERTS, entry_point="f", program=calls).to_json()] * 2
    right, wrong = judge_programs(["def f(x):\n    return x", "def f(x):\n    return 0"], cells, stop=False)
    assert [right.share, wrong.share] == [1.0, 0.0]


@pytest.mark.parametrize(
    "never_run", [CHECK.format(name="test_f"), "if __name__ == '__main__':\n    assert f(1) == 1"]
)
def test_tests_that_run_no_assert_reward_nothing(never_run):
    (verdict,) = judge_programs(
        ["def f(x):\n    return 0"], [ProgramTests(Style.ASSERTS, entry_point="f", program=never_run).to_json()]
    )
    assert "run no assert; functions that hold some have to be called" in str(verdict.error)


def test_the_store_keeps_tests_once_and_notices_when_they_have_changed(tmp_path):
    store = TestStore(tmp_path)
    references = [store.put(tests) for tests in (ALL[0], ALL[1], ALL[0])]
    assert references[0] == references[2]
    assert store.put(references[0]) == references[0]
    assert [store.get(one.sha256) for one in references[:2]] == ALL[:2]
    (path,) = Path(tmp_path).glob(f"*/{references[0].sha256}*")
    assert len(list(Path(tmp_path).glob("*/*"))) == 2
    path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(TestsError, match="does not hold what its name says"):
        store.get(references[0].sha256)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(TestsError, match="cannot be read"):
        store.get(references[0].sha256)
    path.unlink()
    with pytest.raises(TestsError, match="not in the test store"):
        store.get(references[0].sha256)


def test_the_store_lies_where_the_variable_says(tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_MENTOR_CACHE", str(tmp_path))
    assert TestStore().folder == tmp_path


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx\n```", "x\n"),
        ("```\nx\n```\ntext\n~~~py\ny\n~~~", "y\n"),
        ("```python\r\nx\r\n  y\r\n```", "x\n  y\n"),
        ("```python\nx", "x"),
        ("````\n```\nx\n```\n````", "```\nx\n```\n"),
        ("<think>```\na\n```</think>```\nb\n```", "b\n"),
        ("<think>\n```\na\n```\n</think>\n```\nb\n```", "b\n"),
        ("```python\nx\n```\n```\n", "x\n"),
        ("```python\nx\n```\nUse ```y``` so.", "x\n"),
        ("  ```python\n  if x:\n      y\n  ```", "if x:\n    y\n"),
        ("<think>\n```\na\n```", None),
        ("no fence", None),
        ("```python\n\n```", None),
        ("", None),
    ],
)
def test_the_program_is_the_last_block_after_the_thinking(text, program):
    assert program_of(text) == program


def test_hostile_texts_end():
    """In milliseconds; what takes quadratic time would take minutes."""
    units = ("```\n", "```", "~~~x\n", "`" * 99 + "\n", "<think>", "</think>", " " * 12 + "```\n", "\r")
    assert [program_of(unit * 50_000) for unit in units if unit != "~~~x\n"] == [None] * 7
    assert program_of("~~~x\n" * 50_000)


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ("1 2\n", "1 2", True),
        (" 1 2 \r\n\r\n", "1 2\n", True),
        ("1.0 2", "1 2.00", True),
        ("1e2", "100", True),
        ("1  2", "1 2", True),
        ("a  b", "a b", False),
        ("a 1.0", "a 1", False),
        ("0.1", "0.1000001", False),
        ("1\n\n2", "1\n2", False),
        ("yes", "YES", False),
        ("", "", True),
        ("", "0", False),
        ("nan", "nan", True),
        ("nan x", "nan  x", False),
        ("sNaN 1", "1 1", False),
        ("9" * 5000, "9" * 5000, True),
    ],
)
def test_outputs_are_compared_line_by_line_and_numbers_exactly(got, expected, same):
    assert same_output(got, expected) is same


def no_handle(value):
    raise UnfitError(type(value).__name__)


def encoded(value):
    return json.loads(encode(value, no_handle, [10_000]))


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ((1, (2,)), [1, [2]], True),
        ([1.0, True], [1, 1], True),
        ({"a": (1,)}, {"a": [1]}, True),
        ({1: 2}, {"1": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        (2**90, 2**90, True),
        (0.1 + 0.2, 0.3, False),
        (None, None, True),
        (None, 0, False),
        ("1", 1, False),
        ({1}, [1], False),
        (iter([1]), [1], False),
        (b"x", "x", False),
        (float("inf"), float("inf"), True),
        ([], [], True),
        ([], {}, False),
        ([1, 2], [1], False),
    ],
)
def test_results_are_compared_as_python_does_but_for_tuples(got, expected, same):
    assert same_value(encoded(got), expected) is same


def test_plain_values_cross_and_come_out_as_they_were():
    values = [
        None,
        True,
        0,
        -(2**80),
        1.5,
        -0.0,
        "\ud800\n",
        b"\x00",
        (),
        [[]],
        {(1,): {2}},
        frozenset([3]),
        2j,
        range(9, 0, -3),
    ]
    for value in values:
        data = encoded(value)
        assert is_encoded(data)
        assert repr(decode(data, int)) == repr(value)
        assert shown(data, 1000)


@pytest.mark.parametrize(
    "data", [[], [1], ["list", []], ["what"], ["int"], ["int", 5], ["dict", ["list"]], ["handle", 1], ["tuple", ["x"]]]
)
def test_what_no_program_can_have_is_told_apart_without_building_it(data):
    assert not is_encoded(data)


def test_values_that_are_no_data_or_too_much_of_it_do_not_cross():
    with pytest.raises(UnfitError):
        encoded([object()])
    with pytest.raises(TooLargeError):
        encoded(["x" * 100] * 101)


def test_equal_programs_run_once_and_verdicts_keep_their_order():
    draws, same, other = "import random\nprint(random.random())", "print(5)", "print(6)"
    programs = [draws, same, other, draws, f"{draws} # again", None, same]
    tests = ProgramTests(Style.STDIN, (Case("", "5"),)).to_json()
    verdicts = judge_programs(programs, [tests] * len(programs))
    assert [verdict.right for verdict in verdicts] == [False, True, False, False, False, False, True]
    assert verdicts[0] == verdicts[3]
    assert verdicts[0] != verdicts[4]
    assert judge_programs([], []) == []


def test_a_machine_on_which_no_program_starts_is_no_fault_of_the_programs(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/true")
    verdicts = judge_programs(["print(5)", "x = 1"], [ALL[0].to_json(), ALL[2].to_json()])
    assert all("Python does not start in the sandbox" in str(verdict.error) for verdict in verdicts)


class Mortal:
    """A sandbox whose processes are gone before they have taken an order."""

    @contextmanager
    def start(self, argv, **_):
        code = "import os; os.read(0, 1 << 20); os.close(0); print('[\"ready\"]')"
        with subprocess.Popen([sys.executable, "-I", "-c", code], stdin=-1, stdout=-1, bufsize=0) as process:
            yield process


@pytest.mark.parametrize("tests", [ALL[0], ALL[2]], ids=["cases", "asserts"])
def test_a_process_that_is_gone_before_it_has_a_program_is_no_fault_of_the_program(tests):
    (verdict,) = judge_programs(["print(5)"], [tests.to_json()], sandbox=Mortal())
    assert "Python does not start in the sandbox (it has closed its pipe)" in verdict.error


def test_all_tests_are_run_for_a_share_and_only_the_first_that_fails_otherwise():
    cases = tuple(Case(f"{n}", str(n % 2)) for n in range(6))
    cells = [ProgramTests(Style.STDIN, cases).to_json()] * 2
    asserts = "\n".join(f"assert f({n}) == {n % 2}" for n in range(6))
    cells.append(ProgramTests(Style.ASSERTS, entry_point="f", program=asserts).to_json())
    programs = ["print(0)", "print(1)", "def f(n):\n    return 0"]
    shares = judge_programs(programs, cells, stop=False)
    assert [(verdict.passed, verdict.total, len(verdict.failures)) for verdict in shares] == [(3, 6, 3)] * 3
    first = judge_programs(programs, cells)
    assert [(verdict.passed, len(verdict.failures)) for verdict in first] == [(1, 1), (0, 1), (1, 1)]
