"""Check of what judges programs: the sandbox here, a right and a wrong program, and the tests of the first rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trl_mentor.channel import FEEDBACK, VERIFIER_ERROR
from trl_mentor.cli.check_findings import Finding, Level, Setup, captured_warnings, fail, ok, skipped, warn
from trl_mentor.cli.check_process import ENDED_FIX, UserCodeError
from trl_mentor.cli.check_scoring import LoadedReward, RewardError, ask
from trl_mentor.errors import ConfigError
from trl_mentor.guards import TESTS_COLUMN
from trl_mentor.programs.store import FOLDER_VARIABLE, TestStore
from trl_mentor.programs.tests import Case, ProgramTests, Style, TestsError, parse_tests
from trl_mentor.sandbox import Isolation, Sandbox
from trl_mentor.sandbox.box import VARIABLE

QUESTION = [{"role": "user", "content": "Read a number and print its double."}]
TESTS = ProgramTests(Style.STDIN, (Case("3\n", "6\n"),)).to_json()
RIGHT = "```python\nprint(2 * int(input()))\n```"
WRONG = "```python\nprint(int(input()))\n```"

_WEAK = (Isolation.FILTER, Isolation.LIMITS)


def check_programs(setup: Setup) -> Finding:
    """Can programs be run here, does each reward that takes tests tell right from wrong, can the rows' be read."""
    judges = [reward for reward in setup.rewards if reward.judges_programs]
    given = {number: row[TESTS_COLUMN] for number, row in enumerate(setup.rows) if row.get(TESTS_COLUMN) is not None}
    if not any(reward.own for reward in judges) and not any(map(_is_known, given.values())):
        return skipped("sandbox", "no reward that judges programs, and no tests to judge them by")
    try:
        with captured_warnings("trl_mentor.sandbox.tiers"):
            isolation = Sandbox().isolation
    except ConfigError as error:
        return fail("sandbox", "programs cannot be run here", str(error))
    if faults := {number: fault for number, cell in given.items() if (fault := _fault(cell))}:
        number = min(faults)
        unread = f"the tests of row(s) {list(faults)} cannot be read; row {number}: {faults[number]}"
        return fail("sandbox", unread, _fix(given[number]))
    wrong = [found for reward in judges if (found := _tried(reward, setup))]
    worst = max(wrong, key=lambda found: found.level is Level.FAIL, default=None)
    return worst or _sane(isolation, judges, setup, len(given))


def _sane(isolation: Isolation, judges: Sequence[LoadedReward], setup: Setup, given: int) -> Finding:
    names = ", ".join(reward.name for reward in judges)
    tried = f"{names}: a right program gets 1, a wrong one 0" if judges else f"no reward asks for {TESTS_COLUMN!r}"
    found = f"programs run in {isolation.value!r}; {tried}"
    if setup.rows:
        found += f"; {given} of {len(setup.rows)} rows have tests, which can be read"
    if isolation in _WEAK:
        fix = f"install bubblewrap or allow namespaces (docs/sandbox.md), and set no {VARIABLE} that asks for less"
        return warn("sandbox", f"{found}; no namespaces keep them apart from this machine", fix, isolation=isolation)
    if setup.rows and not given:
        fix = f"fill the column {TESTS_COLUMN!r}, or look at more of a mixture with --rows"
        return warn("sandbox", found, fix, isolation=isolation)
    return ok("sandbox", found, isolation=isolation)


def _tried(reward: LoadedReward, setup: Setup) -> Finding | None:
    """What is wrong with the rewards of a right and a wrong program; one of the user's own may have its reasons."""
    first: Mapping[str, Any] = setup.usable_rows[0] if setup.usable_rows else {"prompt": QUESTION}
    try:
        answer = ask(reward, [{**first, TESTS_COLUMN: TESTS}] * 2, [RIGHT, WRONG])
    except UserCodeError as ended:
        return fail("sandbox", str(ended), ENDED_FIX)
    except RewardError as error:
        answer = {"values": (), "reported": [{VERIFIER_ERROR: str(error)}]}
    if list(answer["values"]) == [1.0, 0.0]:
        return None
    given = ", ".join("None" if math.isnan(value) else f"{value:g}" for value in answer["values"]) or "no reward"
    reported = answer["reported"][0]
    said = reported.get(VERIFIER_ERROR) or reported.get(FEEDBACK)
    found = f"{reward.name} gives a right and a wrong program {given}, not 1, 0{f': {said}' if said else ''}"
    if reward.own:
        return fail("sandbox", found, "see what python -m trl_mentor.sandbox says, and docs/sandbox.md")
    return warn("sandbox", found, "see that it reads fenced programs and the tests of docs/rewards.md, if it should")


def _is_known(cell: Any) -> bool:
    try:
        parse_tests(cell)
    except TestsError:
        return False
    return True


def _fault(cell: Any) -> str:
    """Why the tests of a cell cannot be had, or nothing."""
    try:
        tests = parse_tests(cell)
        if tests.style is Style.STORED:
            TestStore().get(tests.sha256)
    except TestsError as error:
        return str(error)
    return ""


def _fix(cell: Any) -> str:
    if _is_known(cell):
        return f"load the data set with load_task on every machine, or set {FOLDER_VARIABLE} to a folder that has them"
    return f"make every cell of {TESTS_COLUMN!r} a JSON text as docs/rewards.md describes it"
