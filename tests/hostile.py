"""Programs for a sandbox, hostile and honest, and what must become of them."""
# ruff: noqa: E501  one line for a program reads better than several

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass, replace

from trl_mentor.sandbox import Ending, Isolation, Limits

BWRAP, SPACES, FILTER, LIMITS = Isolation
EXITED, TIMED_OUT, TOO_MUCH, KILLED = Ending
ROOT = os.geteuid() == 0

EVERYWHERE = frozenset(Isolation)
FILTERED = EVERYWHERE - {LIMITS}
NAMESPACED = frozenset({BWRAP, SPACES})
BY_USER = EVERYWHERE if ROOT else FILTERED
"""Where another user's rights, or a filter, keep a program from the processes and files of this one."""

QUICK = Limits(seconds=0.6, output_bytes=10_000, file_mib=1, memory_mib=512)
PLENTY = replace(QUICK, seconds=30.0)
REFUSED = b"refused\n"


@dataclass(frozen=True)
class Hostile:
    """A program and what becomes of it."""

    name: str
    code: str
    ending: Ending = EXITED
    exit_code: int | None = 0
    stdout: bytes | None = b""
    """None: whatever it may be."""
    where: frozenset[Isolation] = EVERYWHERE

    @property
    def limits(self) -> Limits:
        return QUICK if self.ending is TIMED_OUT else PLENTY


def attempt(code: str) -> str:
    """A program that says whether something was refused."""
    body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
    return f"import os, sys\ntry:\n{body}\nexcept OSError:\n    print('refused')\nelse:\n    print('done')\n"


C_CALL = "import ctypes\nif ctypes.CDLL(None, use_errno=True).{call} == -1: raise OSError\n"
FOREVER = {"ending": TIMED_OUT, "exit_code": None, "stdout": None}
CRASH = {"ending": KILLED, "exit_code": None}

PROGRAMS = [
    # Too much of something.
    Hostile("fork bomb", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", **FOREVER),
    Hostile("fork bomb of daemons", "import os\nwhile True:\n  try:\n    if not os.fork(): os.setsid()\n  except OSError: pass", **FOREVER),
    Hostile("threads without end", "import threading, time\nwhile True:\n  try: threading.Thread(target=time.sleep, args=(60,)).start()\n  except RuntimeError: time.sleep(.01)", **FOREVER),
    Hostile("sleeps", "import time; time.sleep(60)", **FOREVER),
    Hostile("busy loop", "while True: pass", **FOREVER),
    Hostile("regular expression that explodes", "import re; re.match('(a+)+$', 'a' * 50 + 'b')", **FOREVER),
    Hostile("ignores every signal", "import signal\nfor n in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(n, signal.SIG_IGN)\nwhile True: pass", **FOREVER),
    Hostile("stops itself", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", **FOREVER),
    Hostile("closes its files and sleeps", "import os, time; os.closerange(0, 256); time.sleep(60)", **FOREVER),
    Hostile("memory hog", "b = []\ntry:\n  while True: b.append(bytearray(2**24))\nexcept MemoryError: b = None; print('refused')", stdout=REFUSED),
    Hostile("one enormous object", "x = bytearray(2**40)", exit_code=1),
    Hostile("prints forever", "while True: print('x' * 1000)", TOO_MUCH, None),
    Hostile("prints forever on stderr", "import sys\nwhile True: sys.stderr.write('x' * 1000)", TOO_MUCH, None),
    Hostile("children print forever", "import os\nfor _ in range(3): os.fork()\nwhile True: os.write(1, b'x' * 1000)", TOO_MUCH, None),
    Hostile("huge file", attempt("with open('x', 'wb') as f:\n  for _ in range(64): f.write(bytes(2**16))"), stdout=REFUSED),
    Hostile("many files", "for n in range(500): open(str(n), 'w').close()"),
    Hostile("many open files", attempt("x = [open('/dev/null') for _ in range(5000)]"), stdout=REFUSED),
    Hostile("huge arguments", attempt("os.execv('/bin/true', ['x' * 2**17] * 100)"), stdout=REFUSED),
    Hostile("huge environment", attempt("os.execve('/bin/true', ['x'], {str(n): 'x' * 2**17 for n in range(100)})"), stdout=REFUSED),
    # Processes that stay.
    Hostile("leaves a child", "import os, time\nif not os.fork(): time.sleep(60)"),
    Hostile("leaves a child that holds the output", "import os, time\nif not os.fork():\n  while True: time.sleep(60)\nprint('x', flush=True)", stdout=b"x\n"),
    Hostile("leaves a daemon", "import os, time\nif not os.fork():\n  os.setsid()\n  if not os.fork():\n    while True: time.sleep(60)\n  os._exit(0)\nos.wait()"),
    Hostile("leaves a daemon that ignores signals", "import os, signal, time\nif not os.fork():\n  os.setsid(); signal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN)\n  while True: time.sleep(60)"),
    Hostile("leaves a group of processes", "import os, time\nif not os.fork():\n  os.setpgid(0, 0)\n  time.sleep(60)"),
    Hostile("leaves a thread", "import threading, time, os\nthreading.Thread(target=time.sleep, args=(60,)).start(); os._exit(0)"),
    Hostile("leaves another program", "import subprocess; subprocess.Popen(['/bin/sleep', '60', sys.argv[1]])".replace("subprocess;", "subprocess, sys;")),
    # Ends.
    Hostile("exits 0 early", "import os; print('x', flush=True); os._exit(0)", stdout=b"x\n"),
    Hostile("exits with a code", "raise SystemExit(3)", exit_code=3),
    Hostile("ends by a signal", "import os; os.kill(os.getpid(), 9)", **CRASH),
    Hostile("aborts", "import os; os.abort()", **CRASH),
    Hostile("breaks memory", "import ctypes; ctypes.string_at(0)", **CRASH),
    Hostile("kills its group", "import os; os.killpg(0, 9)", **CRASH),
    Hostile("writes bytes", "import os; os.write(1, bytes(range(256)) + b'\\xff\\x00')", stdout=bytes(range(256)) + b"\xff\x00"),
    # The network and other processes.
    Hostile("TCP to this machine", attempt("import socket; socket.create_connection(('127.0.0.1', int(os.sys.argv[2])), 5)"), stdout=REFUSED, where=FILTERED),
    Hostile("UDP", attempt("import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', int(os.sys.argv[2])))"), stdout=None, where=FILTERED),
    Hostile("IPv6", attempt("import socket; socket.create_connection(('::1', int(os.sys.argv[2])), 5)"), stdout=REFUSED, where=FILTERED),
    Hostile("socket in a folder", attempt("import socket; socket.socket(socket.AF_UNIX).connect(sys.argv[3] + '/socket')"), stdout=REFUSED, where=FILTERED),
    Hostile("abstract socket", attempt("import socket; socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[3])"), stdout=REFUSED, where=FILTERED),
    Hostile("kills the parent", "import os\ntry: os.kill(os.getppid(), 9)\nexcept OSError: pass", where=BY_USER),
    Hostile("kills the test", attempt("os.kill(int(sys.argv[4]), 9)"), stdout=REFUSED, where=BY_USER),
    Hostile("kills everything", "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass", where=BY_USER),
    Hostile("stops everything", "import os\ntry: os.kill(-1, 19)\nexcept OSError: pass", where=BY_USER),
    Hostile("daemon that kills everything again and again", "import os, time\nif not os.fork():\n  os.setsid()\n  while True:\n    try: os.kill(-1, 9)\n    except OSError: pass\ntime.sleep(60)", **CRASH, where=BY_USER),
    Hostile("environment of the test", attempt("open(f'/proc/{sys.argv[4]}/environ').read()"), stdout=REFUSED, where=BY_USER),
    Hostile("environment of its parents", "import os\nfor n in (1, os.getppid()):\n  try: data = open(f'/proc/{n}/environ').read()\n  except OSError: data = ''\n  assert 'not-for-programs' not in data", where=BY_USER),
    Hostile("memory of the parent", attempt("open(f'/proc/{os.getppid()}/mem', 'rb+')"), stdout=REFUSED, where=BY_USER),
    Hostile("ptrace", attempt(C_CALL.format(call="ptrace(16, os.getppid(), 0, 0)")), stdout=REFUSED, where=BY_USER),
    Hostile("reads memory of others", attempt(C_CALL.format(call="process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)")), stdout=REFUSED, where=FILTERED),
    Hostile("limits of others", attempt("import resource; resource.prlimit(int(sys.argv[4]), resource.RLIMIT_CPU, (1, 1))"), stdout=REFUSED, where=BY_USER),
    # More rights.
    Hostile("becomes root", attempt("os.setuid(0)"), stdout=REFUSED),
    Hostile("new namespaces", attempt(C_CALL.format(call="unshare(0x10000000)")), stdout=REFUSED, where=FILTERED),
    Hostile("mounts", attempt(C_CALL.format(call="mount(b'x', b'/box', b'tmpfs', 0, b'')")), stdout=REFUSED, where=FILTERED | BY_USER),
    Hostile("io_uring", attempt(C_CALL.format(call="syscall(425, 8, 0)")), stdout=REFUSED, where=FILTERED),
    Hostile("raises a limit", "import resource\ntry: resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nexcept ValueError: print('refused')", stdout=REFUSED),
    Hostile("raises its priority", attempt("os.nice(-5)"), stdout=REFUSED, where=BY_USER),
    Hostile("terminal", attempt("open('/dev/tty')"), stdout=REFUSED),
    Hostile("types into a terminal", attempt("import fcntl; fcntl.ioctl(0, 0x5412, b'x')"), stdout=REFUSED),
    # Files.
    Hostile("reads a secret", attempt("open(sys.argv[3] + '/secret').read()"), stdout=REFUSED, where=BY_USER),
    Hostile("reads what all may read", attempt("open(sys.argv[3] + '/open').read()"), stdout=REFUSED, where=FILTERED),
    Hostile("lists the folder of the test", attempt("os.listdir(sys.argv[3])"), stdout=REFUSED, where=FILTERED),
    Hostile("reads the home", attempt("if os.listdir(sys.argv[5]) in ([], [os.path.realpath(sys.executable).split(os.sep)[2]]): raise OSError"), stdout=REFUSED, where=FILTERED),
    Hostile("passwords", attempt("open('/etc/shadow').read()"), stdout=REFUSED),
    Hostile("writes outside", attempt("open(sys.argv[3] + '/written', 'w')"), stdout=REFUSED, where=BY_USER),
    Hostile("writes where all may write", attempt("open(sys.argv[3] + '/public/written', 'w')"), stdout=REFUSED, where=FILTERED),
    Hostile("overwrites the interpreter", attempt("open(os.path.realpath(sys.executable), 'r+b')"), stdout=REFUSED, where=BY_USER),
    Hostile("link to a secret", attempt("os.symlink(sys.argv[3] + '/open', 'x'); open('x').read()"), stdout=REFUSED, where=FILTERED),
    Hostile("link to a folder", "import os, sys; os.symlink(sys.argv[3], 'x'); os.symlink('x', 'y'); os.symlink('z', 'z')"),
    Hostile("no way into its folder", "import os; os.mkdir('a'); open('a/b', 'w').close(); os.chmod('a', 0)\ntry: os.chmod('.', 0)\nexcept OSError: pass"),
    Hostile("deletes its folder", "import os\ntry: os.rmdir(os.getcwd())\nexcept OSError: pass"),
    Hostile("deep folders", "import os\nfor _ in range(400): os.mkdir('d' * 200); os.chdir('d' * 200)"),
    Hostile("odd names", "import os\nfor n in (b'-rf', b'\\xff\\xfe', b'a\\nb', b'*'): os.mkdir(n)\nos.mkfifo('f')"),
    # What honest programs do.
    Hostile("threads", "import threading\nx = [threading.Thread(target=print, args=('x',)) for _ in range(4)]\nfor t in x: t.start(); t.join()", stdout=b"x\n" * 4),
    Hostile("another Python", "import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', 'print(1)'], check=True)", stdout=b"1\n"),
    Hostile("processes", "import multiprocessing as m\na, b = m.Pipe()\np = m.Process(target=b.send, args=(7,)); p.start(); p.join(); print(a.recv())", stdout=b"7\n"),
    Hostile("ends a child", "import subprocess\np = subprocess.Popen(['sleep', '60']); p.terminate(); print(p.wait())", stdout=b"-15\n"),
    Hostile("pool of processes", "import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, 2]))", stdout=b"[1, 2]\n", where=NAMESPACED),
    Hostile("event loop", "import asyncio\nasync def f(): await asyncio.sleep(0); print('x')\nasyncio.run(f())", stdout=b"x\n"),
    Hostile("temporary files", "import tempfile, os\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x')\nopen(os.environ['HOME'] + '/x', 'w').close()"),
    Hostile("installed packages", "import glob, os, sys\nfolders = [f for p in {sys.prefix, '/usr', '/usr/local', os.path.dirname(os.path.dirname(sys.executable))} for f in glob.glob(p + '/lib/python3*/*-packages')]\nprint(folders != [], sorted(n for f in folders for n in os.listdir(f)))", stdout=b"True []\n", where=NAMESPACED),
    Hostile("what it finds", "import os, resource\nprint(sorted(set(os.environ) - {'PWD'})); print(os.listdir('.'), os.listdir(os.environ['HOME']), resource.getrlimit(4), os.getuid() != 0)\nfor n in range(3, 256):\n  try: os.fstat(n)\n  except OSError: continue\n  print(n)",
            stdout=b"['HOME', 'LC_ALL', 'MKL_NUM_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'PATH', 'TMPDIR']\n[] [] (0, 0) True\n"),
]  # fmt: skip
