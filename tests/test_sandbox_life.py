"""The life of a sandbox: talking to a program, the end of the process that asked, forks, many at once, and tiers."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from boxes import SYSTEM_PYTHON, command, folder, processes_with, starter, survivors, target
from hostile import FILTER, LIMITS, NAMESPACED, PLENTY, PROGRAMS, QUICK, TIMED_OUT, TOO_MUCH, Hostile

from trl_mentor.errors import ConfigError
from trl_mentor.sandbox import Ending, Isolation, Limits, Sandbox, available, seccomp, tiers
from trl_mentor.sandbox.launcher import Launcher
from trl_mentor.sandbox.talk import Talk

__all__ = ["folder", "target"]
TIERS = [pytest.param(tier, id=tier.value) for tier in Isolation]
ECHO = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"
ASKER = """
import os, signal, sys, tempfile, threading, time
tempfile.tempdir = sys.argv[1]
from trl_mentor.sandbox import Isolation, Limits, tiers
start = tiers.launcher(Isolation(sys.argv[2]))
argv = [sys.argv[3], "-I", "-S", "-c", sys.argv[4], os.environ["MARKER"]]
if sys.argv[5] == "killed":
    with start.start(argv, {}, Limits(seconds=60)) as running:
        running.stdout.read(1)
        if not os.fork():  # holds copies of all that its parent had open, and outlives it
            time.sleep(8)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    start.run(argv, {}, b"", Limits(seconds=60))
except KeyboardInterrupt:
    print("interrupted", os.listdir(sys.argv[1]))
"""
DAEMONS = """
import os, time
for _ in range(2):
    if not os.fork():
        os.setsid()
        while True: time.sleep(1)
open("x", "w").close(); os.write(1, b"x"); time.sleep(60)
"""

IN_A_CONTAINER = """
import os, struct
from trl_mentor.sandbox import Isolation, kernel, tiers
linux = kernel.Kernel()
if os.geteuid() == 0:
    linux.prctl(24, kernel.SYS_ADMIN)  # PR_CAPBSET_DROP: programs of root do not get this capability
linux.renounce()
unshare = 272 if os.uname().machine == "x86_64" else 97
code = [(0x20, 0, 0, 0), (0x15, 0, 1, unshare), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
linux.filter(b"".join(struct.pack("=HBBI", *one) for one in code))
print(tiers.problem_of(Isolation.NAMESPACES))
print(tiers.problem_of(Isolation.FILTER))
"""


RESTRICTED = """
import resource
from trl_mentor.sandbox import Isolation, tiers
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
print([tiers.problem_of(tier) for tier in Isolation])
"""


@pytest.mark.parametrize("tier", TIERS)
def test_a_program_can_be_talked_to_and_is_gone_after_the_block(tier, folder):
    start, python = starter(tier)
    marker = uuid.uuid4().hex
    with start.start(command(python, ECHO, marker), {}, PLENTY) as running:
        running.stdin.write(b"a line\n")
        assert running.stdout.readline() == b"A LINE\n"
        assert processes_with(marker)
    assert survivors(marker, folder) == []


@pytest.mark.parametrize("tier", TIERS)
def test_a_program_that_is_talked_to_ends_at_its_time_and_when_it_is_told(tier, folder):
    start, python = starter(tier)
    with start.start(command(python, ECHO), {}, QUICK) as running:
        assert running.stdout.read() == b""
    with start.start(command(python, ECHO), {}, PLENTY) as running:
        running.kill()
        assert running.stdout.read() == b""
    with pytest.raises(ZeroDivisionError), start.start(command(python, ECHO, "boom"), {}, PLENTY):
        _ = 1 / 0
    assert survivors("boom", folder) == []


@pytest.mark.parametrize("tier", TIERS)
def test_files_input_and_both_outputs_pass_at_once(tier, folder):
    start, python = starter(tier)
    code = (
        "import sys; sys.stdout.write('x' * 300_000); sys.stderr.write('y' * 300_000)\n"
        "print(open('d/e/f').read(), len(sys.stdin.read()))"
    )
    limits = replace(PLENTY, output_bytes=2**20)
    result = start.run(command(python, code), {"d/e/f": b"content"}, b"z" * 400_000, limits)
    assert result.stdout == b"x" * 300_000 + b"content 400000\n"
    assert result.stderr == b"y" * 300_000
    assert start.run(command(python, "pass"), {}, b"z" * 400_000, limits).ending is Ending.EXITED  # reads none of it


@pytest.mark.parametrize("tier", TIERS)
def test_programs_see_nothing_of_each_other(tier, folder):
    start, python = starter(tier)
    first = "import os; open('mine', 'w').close(); print(os.getcwd(), os.getpid(), flush=True); os.read(0, 1)"
    second = (
        "import os, sys\ntry: print('mine' in os.listdir(sys.argv[1]))\nexcept OSError: print(False)\n"
        "try: os.kill(int(sys.argv[2]), 9) if int(sys.argv[2]) > 100 else None\nexcept OSError: pass"
    )
    if tier in (FILTER, LIMITS) and os.geteuid():
        pytest.skip("programs of an ordinary user have that user in common")
    with start.start(command(python, first), {}, PLENTY) as running:
        where = running.stdout.readline().decode().split()
        assert start.run(command(python, second, *where), {}, b"", PLENTY).stdout == b"False\n"
        running.stdin.write(b"x")
        assert running.stdout.read() == b""


@pytest.mark.parametrize("how", ["killed", "interrupted"])
@pytest.mark.parametrize("tier", TIERS)
def test_programs_end_with_the_process_that_asked_for_them(tier, how, folder):
    _, python = starter(tier)
    marker = uuid.uuid4().hex
    arguments = [str(folder), tier.value, python, DAEMONS, how]
    package = str(Path(tiers.__file__).parents[2])
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, *arguments],
        env={"PYTHONPATH": package, "MARKER": marker},
        stdout=subprocess.PIPE,
    )
    said = os.read(asker.stdout.fileno(), 100) if how == "interrupted" else b""
    code = asker.wait(60)
    asker.stdout.close()
    end = time.monotonic() + 6
    while survivors(marker, folder) and time.monotonic() < end:
        time.sleep(0.05)
    assert survivors(marker, folder) == []
    assert (code, said) == ((-signal.SIGKILL, b"") if how == "killed" else (0, b"interrupted []\n"))


ORDINARY = """
import json, sys, tempfile
sys.path.insert(0, sys.argv[1])
tempfile.tempdir = sys.argv[2]
from trl_mentor.sandbox import Isolation, Limits, tiers
start, limits = tiers.launcher(Isolation(sys.argv[3])), Limits(seconds=float(sys.argv[4]), memory_mib=512)
if problem := tiers.problem_of(Isolation(sys.argv[3])):
    sys.exit(problem)
said = []
for code in sys.argv[6:]:
    result = start.run([sys.executable, "-I", "-S", "-B", "-c", code, sys.argv[5]], {}, b"", limits)
    said.append([result.ending, result.exit_code, result.stdout.decode()])
print(json.dumps(said))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
@pytest.mark.parametrize("who", ["ordinary user", "root of a container that has no other user"])
@pytest.mark.parametrize("tier", TIERS)
def test_who_has_no_other_user_to_become_can_run_programs_as_well(tier, who, target):
    """Namespaces, or the filters, have to do."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    place.chmod(0o777)
    marker = uuid.uuid4().hex
    names = ["leaves a daemon", "leaves a group of processes", "ends a child", "threads", "memory hog"]
    names += ["ptrace", "abstract socket", "kills everything"] if tier is not LIMITS else []
    names += ["becomes root"] if tier is not LIMITS and who == "ordinary user" else []
    chosen = [program for program in PROGRAMS if program.name in names]
    codes = [program.code.replace("sys.argv[3]", repr(str(target.folder))) for program in chosen]
    package = str(Path(tiers.__file__).parents[2])
    argv = [] if who == "ordinary user" else ["unshare", "--map-root-user"]
    argv += [SYSTEM_PYTHON, "-c", ORDINARY, package, str(place), tier.value, "30", marker, *codes]
    done = subprocess.run(argv, user=54321, group=54321, extra_groups=[], capture_output=True, text=True, check=False)
    if done.returncode and "Traceback" not in done.stderr:
        pytest.skip(f"no {tier.value} for {who}: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    for program, (ending, code, stdout) in zip(chosen, json.loads(done.stdout), strict=True):
        assert (ending, code) == (program.ending, program.exit_code), program.name
        assert program.name == "kills everything" or stdout.encode() == program.stdout, program.name
    assert survivors(marker, place) == []
    assert target.untouched()
    place.rmdir()


def test_a_forked_process_runs_programs_by_itself():
    sandbox = Sandbox()
    argv = command(sys.executable, "print(1)")
    assert sandbox.run(argv, files={}).stdout == b"1\n"
    child = os.fork()
    if not child:
        os._exit(7 if sandbox.run(argv, files={}).stdout == b"1\n" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert sandbox.run(argv, files={}).stdout == b"1\n"


def test_a_process_that_starts_programs_and_was_killed_is_replaced():
    sandbox = Sandbox()
    argv = command(sys.executable, "print(1)")
    warden = tiers.launcher(sandbox.isolation)._warden._process
    warden.kill()
    warden.wait()
    assert sandbox.run(argv, files={}).stdout == b"1\n"


def test_two_hundred_programs_at_once_do_not_disturb_each_other(folder, target):
    """Each has its own processes to spend, whatever the fork bombs beside it do."""
    names = ["fork bomb", "threads without end", "sleeps", "memory hog", "prints forever", "leaves a daemon", "aborts"]
    hostile = [program for program in PROGRAMS if program.name in names]
    assert len(hostile) == len(names)
    threads = "import threading\nx = [threading.Thread(target=print, args=('x',)) for _ in range(8)]\n"
    honest = threads + "for t in x: t.start()\nfor t in x: t.join()"
    programs = []
    for number in range(200):
        programs.append(
            hostile[number // 5 % len(hostile)] if number % 5 == 0 else Hostile("honest", honest, stdout=b"x\n" * 8)
        )
    sandbox, marker = Sandbox(), uuid.uuid4().hex

    def run(program: Hostile) -> bool:
        limits = replace(program.limits, seconds=1.0 if program.ending is TIMED_OUT else 60.0)
        result = sandbox.run(command(sys.executable, program.code, marker), files={}, limits=limits)
        fits = program.stdout is None or program.ending is TOO_MUCH or result.stdout == program.stdout
        return fits and (result.ending, result.exit_code) == (program.ending, program.exit_code)

    with ThreadPoolExecutor(200) as pool:
        judged = list(pool.map(run, programs))
    assert [program.name for program, right in zip(programs, judged, strict=True) if not right] == []
    assert survivors(marker, folder) == []


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "."])
def test_a_file_outside_of_the_programs_folder_is_refused(name):
    with pytest.raises(ConfigError, match="expected a relative path inside its folder"):
        Sandbox().run(["true"], files={name: b""})


@pytest.mark.parametrize("limit", [{"seconds": 0}, {"seconds": float("nan")}, {"memory_mib": -1}, {"processes": 0}])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(ConfigError, match=f"got {next(iter(limit))}="):
        Limits(**limit)


def test_a_program_that_is_not_there_is_said_to_be():
    start, _ = starter(Isolation.NAMESPACES)
    with pytest.raises(ConfigError, match="cannot start '/no/such'"):
        start.run(["/no/such"], {}, b"", Limits())
    with (
        pytest.raises(ConfigError, match="cannot start '/no/such'"),
        start.start(["/no/such"], {}, Limits()) as running,
    ):
        running.stdout.read()


@pytest.mark.parametrize("argv", [[], "python3 x.py", ["a\0b"]])
def test_a_command_that_is_no_list_of_words_is_refused(argv):
    start, _ = starter(Isolation.NAMESPACES)
    with pytest.raises(ConfigError, match="expected a list of a program and its arguments"):
        start.run(argv, {}, b"", Limits())


@pytest.mark.parametrize("isolation", sorted(NAMESPACED))
def test_libraries_of_environment_modules_are_there(isolation, monkeypatch, tmp_path):
    starter(isolation)  # which skips where the machine lacks it
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libx.so").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    fresh = Launcher(isolation)
    code = "import os; print(os.listdir(os.environ['LD_LIBRARY_PATH']))"
    result = fresh.run(command(sys.executable, code), {}, b"", Limits())
    fresh.close()
    assert result.stdout == b"['libx.so']\n", result


def test_a_tier_that_the_machine_lacks_is_an_error_that_says_why(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    tiers.problem_of.cache_clear()
    with pytest.raises(ConfigError, match="isolation='bubblewrap', which this machine does not provide: bwrap"):
        Sandbox(Isolation.BUBBLEWRAP)
    tiers.problem_of.cache_clear()


def test_the_environment_names_the_isolation_of_those_who_name_none(monkeypatch):
    monkeypatch.setenv("TRL_MENTOR_ISOLATION", "filter")
    assert Sandbox().isolation is FILTER
    monkeypatch.setenv("TRL_MENTOR_ISOLATION", "docker")
    with pytest.raises(ConfigError, match="TRL_MENTOR_ISOLATION is 'docker', expected one of bubblewrap, namespaces"):
        Sandbox()
    with pytest.raises(ConfigError, match="isolation is 'filtre', expected one of"):
        Sandbox("filtre")


def test_less_than_namespaces_is_said_once(monkeypatch, caplog):
    problems = dict.fromkeys((Isolation.BUBBLEWRAP, Isolation.NAMESPACES), "not here")
    monkeypatch.setattr(tiers, "problem_of", problems.get)
    tiers.available.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert (available(), available()) == (FILTER, FILTER)
    tiers.available.cache_clear()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("trl-mentor: programs run without namespaces")
    assert "Install bubblewrap, or allow namespaces" in line


def test_a_narrow_umask_and_low_limits_of_the_shell_take_no_tier_away():
    argv = [sys.executable, "-c", RESTRICTED]
    wide = subprocess.run([*argv[:2], RESTRICTED.replace("resource.setr", "#")], capture_output=True, text=True)
    narrow = subprocess.run(argv, umask=0o077, capture_output=True, text=True)
    assert narrow.stdout == wide.stdout != ""


@pytest.mark.skipif(not seccomp.supported(), reason="the filter is written for x86-64 and ARM64 Linux")
def test_a_container_that_refuses_namespaces_is_no_endless_wait():
    done = subprocess.run([sys.executable, "-c", IN_A_CONTAINER], capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines() == ["PermissionError: [Errno 1] unshare: Operation not permitted", "None"]


def test_waiting_for_a_program_that_does_not_end_has_an_end():
    reader, writer = os.pipe()
    answer, other = socket.socketpair()
    with (
        answer,
        other,
        open(reader, "rb", 0) as out,
        open(os.dup(reader), "rb", 0) as err,
        open(writer, "wb", 0),
        open(os.dup(writer), "wb", 0) as feed,
    ):
        assert Talk(feed, (out, err), answer, b"", 1).until_the_end(0.05) == b""


def test_the_command_names_the_tier_in_use():
    done = subprocess.run([sys.executable, "-m", "trl_mentor.sandbox"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"in use: {available().value}"
