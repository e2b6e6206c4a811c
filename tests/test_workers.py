"""A child answers questions, is killed where it is late, and knows nothing of its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trl_mentor.workers import Worker, WorkerError, share_of_cores

HAS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def is_gone(pid: int) -> bool:
    for _ in range(300):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True  # an orphan that nobody has collected here
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def worker() -> Iterator[Worker]:
    child = Worker("answering")
    yield child
    child.end()


def test_answers_come_back_whatever_their_length_and_characters(worker):
    for text in ("", "a\nb\0c", "\ud800 é", "x" * 3_000_000):
        assert worker.ask({"do": "echo", "text": text}, 30) == {"id": worker.asked, "echo": text}
    assert worker.ask({"do": "print"}, 30) == {"id": 5}
    assert worker.alive


@pytest.mark.parametrize(("question", "seconds"), [("sleep", 0.2), ("end", 30), ("spin", 30)])
def test_a_child_that_is_late_or_gone_gives_no_answer_and_leaves_no_process(worker, question, seconds):
    assert worker.ask({"do": question}, seconds) is None
    assert worker.ask({"do": "echo", "text": "late"}, 0.2) is None
    worker.end()
    assert not worker.alive
    with pytest.raises(ProcessLookupError):
        os.kill(worker.process.pid, 0)
    expected = {"sleep": -signal.SIGKILL, "end": 3, "spin": -signal.SIGPROF}
    assert worker.process.returncode == expected[question]


def test_a_child_that_does_not_read_is_late_too(worker):
    os.kill(worker.process.pid, signal.SIGSTOP)
    assert worker.ask({"do": "echo", "text": "x" * 3_000_000}, 0.2) is None


@HAS_PROC
def test_a_child_has_little_memory_and_no_key(worker, monkeypatch):
    assert worker.ask({"do": "hoard"}, 30) == {"id": 1, "got": 0}
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    other = Worker("answering")
    answer = other.ask({"do": "environment"}, 30)
    other.end()
    assert answer is not None
    assert set(answer["names"]) <= {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
    assert answer["nice"] >= min(19, os.nice(0) + 5)


def test_what_a_child_lacks_is_said(monkeypatch):
    with pytest.raises(WorkerError, match="ModuleNotFoundError: No module named 'no_such_library'"):
        Worker("answering_not")
    with pytest.raises(WorkerError, match=r"no_such_module did not start \(exit status 1\)"):
        Worker("no_such_module")
    monkeypatch.setattr(sys, "executable", "/no/such/file")
    with pytest.raises(FileNotFoundError):
        Worker("answering")


@HAS_PROC
def test_a_child_ends_with_its_parent_though_a_forked_process_lives_on():
    code = (
        "import os, time\nfrom trl_mentor.workers import Worker\nworker = Worker('answering')\nforked = os.fork()\n"
        "if not forked:\n    worker.let_go()\n    time.sleep(60)\n"
        "print(worker.process.pid, forked, flush=True)\nos._exit(0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child, forked = map(int, parent.stdout.readline().split())
        try:
            assert is_gone(child)
        finally:
            os.kill(forked, signal.SIGKILL)


def test_two_ranks_of_one_machine_share_its_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert share_of_cores() == 6
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100")
    assert share_of_cores() == 1
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert share_of_cores() == 12
