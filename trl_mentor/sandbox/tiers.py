"""Which isolation this machine provides, found by trying."""

from __future__ import annotations

import logging
import shutil
import sys
from functools import cache

from trl_mentor.errors import ConfigError
from trl_mentor.sandbox import seccomp, users
from trl_mentor.sandbox.launcher import Launcher
from trl_mentor.sandbox.records import Ending, Isolation, Limits

logger = logging.getLogger(__name__)

_TRIAL = "import os, sys; os.mkdir(os.environ['TMPDIR'] + '/a'); sys.stdout.write(sys.stdin.read())"
_LIMITS = Limits(seconds=60.0)
"""A busy machine takes its time; what is late here would be held to be impossible from then on."""
_MISSING = {
    Isolation.FILTER: (
        "programs run without namespaces: files and processes of this machine are kept from them by permissions, a"
        " filter of system calls and, where the kernel has it, Landlock"
    ),
    Isolation.LIMITS: (
        "programs run under resource limits alone: nothing keeps them from the network, or from files and processes"
        " that their user may touch"
    ),
}


@cache
def launcher(isolation: Isolation) -> Launcher:
    """What starts programs in a tier, one for this process."""
    return Launcher(isolation)


@cache
def problem_of(isolation: Isolation) -> str | None:
    """Why programs cannot run in a tier here, or None: one is run for a trial."""
    if isolation is not Isolation.LIMITS and sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    if isolation is Isolation.FILTER and not seccomp.supported():
        return "its filter of system calls is written for x86-64 and ARM64"
    if isolation is Isolation.BUBBLEWRAP:
        needed = ("bwrap", "prlimit", *(("setpriv",) if users.are_given() else ()))
        if missing := [program for program in needed if shutil.which(program) is None]:
            return f"{', '.join(missing)} not found on PATH"
    argv = [sys.executable or "python3", "-I", "-S", "-B", "-c", _TRIAL]
    starter = launcher(isolation)
    try:
        result = starter.run(argv, {}, b"works", _LIMITS)
    except (ConfigError, OSError) as error:
        starter.close()
        return str(error)
    if (result.ending, result.stdout) == (Ending.EXITED, b"works"):
        return None
    starter.close()
    said = result.stderr.decode(errors="replace").strip().splitlines()
    return said[-1] if said else f"a program run for a trial ended as {result.ending.value} ({result.exit_code})"


@cache
def available() -> Isolation:
    """The best isolation that this machine provides; warns, once, where that is less than namespaces.

    Raises `ConfigError` where programs cannot be run at all.
    """
    problems: dict[Isolation, str] = {}
    for isolation in Isolation:
        problem = problem_of(isolation)
        if problem is None:
            if isolation in _MISSING:
                why = "; ".join(f"{tier.value}: {text}" for tier, text in problems.items())
                logger.warning(
                    "trl-mentor: %s. Install bubblewrap, or allow namespaces (docs/sandbox.md). Tried: %s",
                    _MISSING[isolation],
                    why,
                )
            return isolation
        problems[isolation] = problem
    why = "; ".join(f"{tier.value}: {text}" for tier, text in problems.items())
    raise ConfigError(f"no sandbox can run programs on this machine; see docs/sandbox.md for what to allow ({why})")
