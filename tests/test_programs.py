"""Programs, right, wrong and hostile, are judged rightly, and nothing of them is left."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from trl_mentor.programs.fences import program_of
from trl_mentor.programs.judging import judge_programs
from trl_mentor.programs.tests import Case, ProgramTests, Style
from trl_mentor.sandbox import Isolation, available

DATA = Path(__file__).parent / "data" / "programs"
APART = available() in (Isolation.BUBBLEWRAP, Isolation.NAMESPACES)
ESCAPES = ("kills", "stops", "looks for", "fork bomb", "outlives", "outside", "calls out")


def sealed(text: str) -> str:
    """Results that stand out in whatever memory they are looked for."""
    return f"answer-{hashlib.md5(text.encode()).hexdigest()}"


PROBLEMS = {
    "total": ProgramTests(
        Style.STDIN,
        (
            Case("3\n1 2 3\n", "6\n", hidden=False),
            Case("1\n-5\n", "-5\n"),
            Case("4\r\n10 20 30 40", "100"),
        ),
    ),
    "deep": ProgramTests(Style.STDIN, (Case("20000\n", "200010000\n"),)),
    "big": ProgramTests(Style.STDIN, (Case("1000\n", f"{2**1000}\n"),)),
    "letters": ProgramTests(Style.STDIN, (Case("hé\tllo \r\nżółw\n\u2028x\n", "HÉ\tLLO\nŻÓŁW\n\u2028X\n"),)),
    "sealed": ProgramTests(Style.STDIN, tuple(Case(f"{n}\n", sealed(str(n))) for n in range(3))),
    "merge": ProgramTests(
        Style.CALL,
        (Case(([1, 3], [2]), [1, 2, 3]), Case(([], []), [], hidden=False), Case(([5], [5, 5]), [5, 5, 5])),
        function="merge",
    ),
    "table": ProgramTests(
        Style.CALL,
        (Case((2,), {"rows": [[0, 0.0, None, ""], [1, 0.5, None, "é"]], "big": 10**30, "even": True}),),
        function="table",
    ),
    "add": ProgramTests(
        Style.ASSERTS,
        entry_point="add",
        setup="def identity(x):\n    return x\n\ndef add(a, b):\n    '''The sum.'''\n",
        program=(
            "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate(1, 2) == 3\n"
            "    two = candidate([1], [2])\n    assert two == [1, 2], 'lists'\n"
            "    for n in range(3):\n        assert candidate(n, -n) == 0\n"
            "    assert abs(candidate(0.1, 0.2) - identity(0.3)) < 1e-9\n"
        ),
    ),
    "sum_of": ProgramTests(Style.CALL, (Case(([1, 2, 3],), [1, 3, 6]),), function="accumulate"),
    "median": ProgramTests(
        Style.ASSERTS,
        entry_point="median",
        program="assert all(map(median, [[1], [2, 3]]))\nassert math.isclose(median([1, 2]), 1.5)\n",
    ),
    "arrange": ProgramTests(
        Style.ASSERTS,
        entry_point="arrange",
        program=(
            "rows = [[3, 1], [2]]\ninner = rows[0]\nseen = {'n': 0, 'm': 1}\narrange(rows, seen)\n"
            "assert rows == [[2], [1, 3]]\nassert seen == {'n': 2, 'm': 1}\n"
        ),
    ),
    "kinds": ProgramTests(
        Style.ASSERTS,
        entry_point="kinds",
        program=(
            "from decimal import Decimal\nfrom fractions import Fraction\n"
            "wanted = [None, True, 1, 2 ** 70, 1.5, float('inf'), 1j, 'é\\ud800', b'x', (1,), {1}, frozenset([2]),"
            " {(1, 2): [3]}, range(3), Decimal('1.10'), Fraction(1, 3)]\n"
            "assert kinds() == wanted\n"
            "assert list(map(type, kinds())) == list(map(type, wanted))\n"
            "assert list(count()) == [0, 1, 2]\n"
            "assert next(count()) == 0\n"
            "try:\n    fail('no')\nexcept KeyError as error:\n    assert 'no' in str(error)\n"
        ),
    ),
    "stack": ProgramTests(
        Style.ASSERTS,
        entry_point="make",
        program=(
            "one, two = make(), make()\nassert one is not two\nassert one != two\none.push(5)\none.push([6])\n"
            "assert one.top() == [6]\nassert size(one) == 2\nassert size(two) == 0\ntwo.limit = 0\n"
            "try:\n    two.push(1)\nexcept OverflowError:\n    pass\nelse:\n    assert False\n"
            "assert Stack().limit == 10\n"
        ),
    ),
}
SEALED = {
    "call.md": ProgramTests(
        Style.CALL, tuple(Case((str(n),), sealed(str(n))) for n in range(3)), function="sealed"
    ),
    "asserts.md": ProgramTests(
        Style.ASSERTS, entry_point="sealed", program=f"assert sealed('x') == {sealed('x')!r}\n"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One program of the tables."""

    file: str
    right: bool
    problem: str
    title: str
    says: str
    text: str

    @property
    def tests(self) -> str:
        found = SEALED.get(self.file) if self.problem == "sealed" else None
        return (found or PROBLEMS[self.problem]).to_json()


def entries() -> list[Entry]:
    found = []
    for path in sorted(DATA.glob("*.md")):
        for part in re.split(r"(?m)^## ", path.read_text(encoding="utf-8"))[1:]:
            heading, _, text = part.partition("\n")
            verdict, problem, title = heading.split(" | ")
            says = re.match(r"says: (.*)\n", text)
            if says:
                text = text[says.end() :]
            found.append(Entry(path.name, verdict == "right", problem, title, says[1] if says else "", text))
    return found


@pytest.fixture(scope="module")
def judged():
    """Every program of the tables and its verdict; nobody may have called the one server of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        tried = [one for one in entries() if APART or not any(word in one.title for word in ESCAPES)]
        texts = [one.text.replace("PORT", port) for one in tried]
        verdicts = judge_programs([program_of(text) for text in texts], [one.tests for one in tried], seconds=3)
        server.settimeout(0)
        called = True
        try:
            server.accept()
        except BlockingIOError:
            called = False
    return list(zip(tried, verdicts, strict=True)), called


def test_every_program_is_judged_rightly_and_the_mentor_hears_why_it_fails(judged):
    assert len(entries()) >= 110
    wrong = [
        (entry.file, entry.title, verdict)
        for entry, verdict in judged[0]
        if verdict.right != entry.right or verdict.error or entry.says not in "\n".join(verdict.failures)
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_no_process_file_or_connection_survives_a_program(judged):
    if not APART:
        pytest.skip("this machine has no namespaces to be had")
    assert not judged[1]
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(path.read_bytes())
        except OSError:
            continue
    assert not any(b"98765.4321" in command for command in commands)
    folders = ["/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), os.path.dirname(os.__file__)]
    assert not [folder for folder in folders if Path(folder, "trl-mentor-escaped").exists()]
