"""Judges many programs at once, on as many processors as this process has to itself."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from trl_mentor.errors import ConfigError
from trl_mentor.programs.cases import run_cases
from trl_mentor.programs.relay import run_asserts
from trl_mentor.programs.store import TestStore
from trl_mentor.programs.tests import ProgramTests, Style, TestsError, parse_tests
from trl_mentor.programs.verdict import NO_PROGRAM, SECONDS, Verdict
from trl_mentor.programs.wire import NoStartError
from trl_mentor.sandbox import Sandbox
from trl_mentor.workers import share_of_cores


def judge_programs(
    programs: Sequence[str | None],
    tests: Sequence[str],
    *,
    stop: bool = True,
    seconds: int = SECONDS,
    store: TestStore | None = None,
    sandbox: Sandbox | None = None,
) -> list[Verdict]:
    """A verdict for each program under its tests (cells of a `tests` column), in order.

    No program at all, None, fails. With `stop` a program ends at its first failing test. `seconds` of CPU may go into
    each input, or into all calls of test code. What occurs several times is run once. Tests that cannot be read make
    an error of the verdict, whatever they are.
    """
    if len(programs) != len(tests):
        raise ConfigError(f"got {len(programs)} programs and {len(tests)} tests; expected one for each")
    read = _read(tests, store or TestStore())
    pairs = list(dict.fromkeys(zip(programs, map(str, tests), strict=True)))
    box = sandbox or Sandbox()
    with ThreadPoolExecutor(min(share_of_cores(), max(1, len(pairs)))) as pool:
        verdicts = pool.map(lambda pair: _judge(pair[0], read[pair[1]], box, stop=stop, seconds=seconds), pairs)
        found = dict(zip(pairs, verdicts, strict=True))
    return [found[program, str(cell)] for program, cell in zip(programs, tests, strict=True)]


def _read(cells: Sequence[str], store: TestStore) -> dict[str, ProgramTests | str]:
    """The tests of each cell, or what is wrong with them."""
    found: dict[str, ProgramTests | str] = {}
    for cell in cells:
        if str(cell) not in found:
            try:
                tests = parse_tests(cell)
                found[str(cell)] = store.get(tests.sha256) if tests.style is Style.STORED else tests
            except TestsError as error:
                found[str(cell)] = str(error)
    return found


def _judge(program: str | None, tests: ProgramTests | str, sandbox: Sandbox, *, stop: bool, seconds: int) -> Verdict:
    if isinstance(tests, str):
        return Verdict(0, 0, error=tests)
    if program is None:
        return Verdict(0, 1, (NO_PROGRAM,))
    run = run_asserts if tests.style is Style.ASSERTS else run_cases
    try:
        return run(program, tests, sandbox, stop=stop, seconds=seconds)
    except (OSError, ConfigError, NoStartError) as error:
        return Verdict(0, 0, error=f"the program could not be run: {error}")
    except RecursionError:
        return Verdict(0, 0, error="the tests hold values that are nested too deeply")
