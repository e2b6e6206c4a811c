"""Expressions are compared in a process that can be killed, and the training hears of nothing but late answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trl_mentor.leaks import math_process
from trl_mentor.leaks.gate import UNDECIDED, LeakGate
from trl_mentor.leaks.math_candidates import is_cheap
from trl_mentor.leaks.math_equal import PROCESS, are_equal, value_of
from trl_mentor.leaks.math_process import MathProcessError
from trl_mentor.records import CollapsedGroup

ENDLESS = (
    "x(\\sqrt{\\sqrt{1.5\\binom{9}{4}^{99}}})",
    "\\log -\\cos \\cos \\ln \\log \\tan y\\pi 20!",
)
HAS_PROC = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    PROCESS.restart()
    yield
    PROCESS.restart()


def script(code: str) -> str:
    """What a program prints that compares expressions, as the whole group of processes that a terminal knows."""
    start = "import os, signal, sys, time\nfrom trl_mentor.leaks.math_equal import PROCESS, are_equal\n"
    command = [sys.executable, "-X", "dev", "-c", start + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, process_group=0, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def is_gone(pid: int) -> bool:
    for _ in range(300):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True  # an orphan that nobody has collected here
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_values_come_back_as_they_were_worked_out():
    assert value_of("\\frac{1}{3}") == 1 / 3
    assert value_of("2i") == 2j
    assert value_of("x") is None
    assert value_of("\\frac{1}{0}") is None
    assert are_equal("50\\%", "\\frac{1}{2}")


@pytest.mark.parametrize("expression", ENDLESS)
def test_an_expression_without_an_end_is_given_up_once_and_others_are_compared_after_it(expression):
    assert is_cheap(expression)
    assert are_equal("x + 1", "1 + x")
    first = PROCESS.pid
    with pytest.raises(TimeoutError):
        are_equal(expression, "x")
    assert PROCESS.pid is None
    assert are_equal("x + 2", "2 + x")
    second = PROCESS.pid
    with pytest.raises(TimeoutError):
        are_equal(expression, "y")
    assert are_equal("x + 3", "3 + x")
    assert first != second == PROCESS.pid


def test_a_hint_with_an_expression_without_an_end_is_refused_and_the_next_one_judged():
    asked = CollapsedGroup("How long is it?", (), "2x\\sqrt{2}")
    assert LeakGate().objection(f"Compute ${ENDLESS[0]}$.", asked) == UNDECIDED
    assert LeakGate().objection("Compute $3x\\sqrt{2}$.", asked) is None


def test_a_process_that_was_killed_is_replaced():
    assert are_equal("x + 1", "1 + x")
    killed = PROCESS.pid
    os.kill(killed, signal.SIGKILL)
    assert is_gone(killed)
    assert are_equal("x + 2", "2 + x")
    assert PROCESS.pid not in (None, killed)


def test_a_process_that_was_asked_often_is_replaced_before_its_memory_is_used_up(monkeypatch):
    monkeypatch.setattr(math_process, "_RENEWED", 2)
    assert are_equal("x + 1", "1 + x")
    first = PROCESS.pid
    assert are_equal("x + 2", "2 + x")
    assert is_gone(first)


def test_many_threads_wait_for_each_other_and_an_endless_expression_costs_one_process():
    said: list[object] = []

    def ask(number: int) -> None:
        try:
            said.append(are_equal(ENDLESS[0] if number % 8 == 0 else f"x + {number}", f"{number} + x"))
        except TimeoutError:
            said.append("late")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said, key=str) == [True] * 28 + ["late"] * 4


def test_a_process_that_cannot_start_refuses_what_it_would_have_compared_and_is_not_tried_for_ever(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for number in range(3):
        with pytest.raises(MathProcessError, match="did not start"):
            are_equal(f"x + {number}", "x")
    with pytest.raises(MathProcessError, match="3 times"):
        are_equal("x + 3", "x")
    asked = CollapsedGroup("How long is it?", (), "2\\sqrt{2}")
    assert LeakGate().objection("Compute $\\sqrt{8}$.", asked) == UNDECIDED
    assert LeakGate().objection("Look for a right angle.", asked) is None
    PROCESS.restart()
    monkeypatch.setattr(sys, "executable", "/no/such/file")
    assert LeakGate().objection("Compute $\\sqrt{8}$.", asked) == UNDECIDED


@HAS_PROC
def test_the_process_gets_no_key_and_little_else_of_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    assert are_equal("x + 1", "1 + x")
    environment = Path(f"/proc/{PROCESS.pid}/environ").read_bytes()
    names = {entry.partition(b"=")[0] for entry in environment.split(b"\0") if entry}
    assert b"PATH" in names
    assert names <= {b"PATH", b"LANG", b"LC_ALL", b"LC_CTYPE", b"LD_LIBRARY_PATH", b"DYLD_LIBRARY_PATH"}
    assert b"secret" not in Path(f"/proc/{PROCESS.pid}/cmdline").read_bytes()


@HAS_PROC
def test_nothing_is_left_when_the_program_ends():
    assert is_gone(int(script("are_equal('x + 1', '1 + x'); print(PROCESS.pid)")))


@HAS_PROC
def test_a_process_at_an_endless_expression_ends_without_its_parent():
    code = (
        "from trl_mentor.leaks.math_equal import PROCESS, are_equal\n"
        f"are_equal('x', 'y'); print(PROCESS.pid, flush=True); are_equal({ENDLESS[0]!r}, 'x')"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    assert is_gone(child)


def test_ctrl_c_is_the_parents_and_spoils_no_later_answer():
    said = script(f"""
are_equal("x + 1", "1 + x")
before = PROCESS.pid
try:
    os.killpg(os.getpgid(0), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    print("parent")
os.kill(before, signal.SIGINT)
print(are_equal("x + 2", "2 + x"), PROCESS.pid == before)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    are_equal({ENDLESS[0]!r}, "x")
except KeyboardInterrupt:
    print("again")
print(are_equal("x + 3", "3 + x"), PROCESS.pid == before)
""")
    assert said.split() == ["parent", "True", "True", "again", "True", "False"]


def test_a_forked_process_has_its_own_and_leaves_the_parents_alone():
    said = script("""
are_equal("x + 1", "1 + x")
before = PROCESS.pid
child = os.fork()
if not child:
    fine = PROCESS.pid is None and are_equal("x + 2", "2 + x") and PROCESS.pid not in (None, before)
    sys.exit(0 if fine else 1)
print(os.waitpid(child, 0)[1], are_equal("x + 3", "3 + x"), PROCESS.pid == before)
""")
    assert said.split() == ["0", "True", "True"]
