"""Mathematical answers, judged by math-verify in processes that can be killed: `math_reward` and `judge_math`."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from hashlib import sha256
from math import isfinite
from numbers import Number
from typing import Any

from trl_mentor.assembly import completion_text
from trl_mentor.errors import ConfigError
from trl_mentor.quoting import clean_text
from trl_mentor.records import Completion
from trl_mentor.rewards.judgement import Judgement, check_rows, told
from trl_mentor.rewards.math_pool import MathPool
from trl_mentor.rewards.reading import final_text, normal_text
from trl_mentor.workers import WorkerError

Reference = str | Sequence[str]
"""An answer as data sets state it; a list holds several, all of which are asked for."""

POOL = MathPool()

_LIMIT = 20.0
"""Seconds for an answer. The process ends itself after two seconds of CPU; only a starved one is so late."""
_LONGEST = 1_000_000
"""Characters of a completion that are read, from its end."""
_SHOWN = 300
_NO_ANSWER = "No final answer was found: none in \\boxed{}, and none after words such as 'the answer is'."
_TOO_LATE = "The final answer could not be read in a bounded time; it should be a short expression."

atexit.register(POOL.close)
os.register_at_fork(after_in_child=POOL.forked)


def math_reward(
    completions: Sequence[Completion],
    answer: Sequence[Any] | None = None,
    solution: Sequence[Any] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    r"""1.0 for a completion whose final answer equals the reference, else 0.0; None where the reference is unreadable.

    The reference is the column `answer`, or `solution` where there is no such column: an expression, bare or in
    `$...$` or `\boxed{}`, a worked solution, or a list of several answers. Raises `ConfigError` for neither, and for
    what is not a list with one value for each completion.
    """
    references = _references(completions, answer, solution)
    return told(judge_math([completion_text(completion) for completion in completions], references), log_extra)


def judge_math(texts: Sequence[str], references: Sequence[Any]) -> list[Judgement]:
    """A judgement for every text against its reference, in order. May be called from any thread."""
    check_rows("judge_math", texts=texts, references=references)
    batch = _Batch()
    pairs = [(final_text(text)[-_LONGEST:], _hashable(ref)) for text, ref in zip(texts, references, strict=True)]
    todo = list(dict.fromkeys(pairs))
    exiting = not threading.main_thread().is_alive()  # no thread starts any more
    if len(todo) < 2 or POOL.size == 1 or exiting:
        judged = [batch.judge(pair) for pair in todo]
    else:
        with ThreadPoolExecutor(min(POOL.size, len(todo)), thread_name_prefix="trl-mentor-math") as threads:
            judged = list(threads.map(batch.judge, todo))
    said = dict(zip(todo, judged, strict=True))
    return [said[pair] for pair in pairs]


class _Batch:
    """Completions that are judged together: what is wrong with a reference or with the processes is found once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checked: dict[Reference | None, str | None] = {}
        self._broken: str | None = None

    def judge(self, pair: tuple[str, Reference | None]) -> Judgement:
        text, reference = pair
        if reference is None:
            return Judgement(None, error="the row has no reference answer: no text, number, or list of them")
        error = self._broken or self._checked.get(reference)
        if error is not None:
            return Judgement(None, error=error)
        try:
            judgement = self._tried_twice(text, reference)
            if judgement is None:
                error = self._fault_of(reference)
                judgement = Judgement(0.0, feedback=_TOO_LATE) if error is None else Judgement(None, error=error)
        except (WorkerError, OSError) as failure:
            self._broken = f"the process that reads answers cannot be used: {failure}"
            return Judgement(None, error=self._broken)
        return judgement

    def _tried_twice(self, text: str, reference: Reference) -> Judgement | None:
        """`_judged`, twice where a process does not start: a busy machine may take too long for that once."""
        try:
            return _judged(text, reference)
        except (WorkerError, OSError):
            return _judged(text, reference)

    def _fault_of(self, reference: Reference) -> str | None:
        """Why nothing can be judged by a reference with which one completion took too long; None if it can."""
        with self._lock:
            if reference not in self._checked:
                with POOL.lent() as worker:
                    answer = worker.ask({"reference": reference}, _LIMIT)
                    if answer is None:
                        worker.end()
                late = f"the reference answer {str(reference)[:200]!r} takes too long to read or to compare"
                self._checked[reference] = late if answer is None else None
            return self._checked[reference]


def _judged(text: str, reference: Reference, again: bool = True) -> Judgement | None:
    """The judgement; None where it took too long. A process that was lost to something else is replaced once."""
    with POOL.lent() as worker:
        verdict = worker.ask({"reference": reference, "text": text}, _LIMIT)
        named = worker.ask({}, _LIMIT) if verdict is not None and verdict.get("written") is not None else None
        if verdict is None or (named is None and verdict.get("written") is not None):
            worker.end()
    if verdict is None:
        own_fault = worker.process.returncode in (-signal.SIGPROF, -signal.SIGSEGV)
        return None if own_fault or not again else _judged(text, reference, again=False)
    if "unreadable" in verdict:
        return Judgement(None, error=f"the reference answer cannot be read: {clean_text(verdict['unreadable'])}")
    if verdict["written"] is None:
        return Judgement(0.0, feedback=_NO_ANSWER)
    name = normal_text(verdict["written"]) if named is None else named["name"]
    return Judgement(1.0 if verdict["right"] else 0.0, answer=_short(name))


def _short(name: str) -> str:
    """A name that fits into a table and is still that of this answer alone."""
    name = clean_text(name)
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}... ({sha256(name.encode()).hexdigest()[:12]})"


def _references(
    completions: Sequence[Completion], answer: Sequence[Any] | None, solution: Sequence[Any] | None
) -> Sequence[Any]:
    given = answer if answer is not None else solution
    if given is None:
        raise ConfigError(
            "math_reward got neither an `answer` nor a `solution`: the data set needs one of these columns with the "
            "reference answer; rename the column that has it"
        )
    columns = {"answer": answer, "solution": solution}
    stated = {name: column for name, column in columns.items() if column is not None}
    check_rows("math_reward", completions=completions, **stated)
    return given


def _hashable(reference: Any) -> Reference | None:
    """A reference as the process takes it; None for what is none. The e of 1e-07 would be read as a factor."""
    if isinstance(reference, float):
        return f"{Decimal(repr(float(reference))):f}" if isfinite(reference) else None
    if isinstance(reference, str | Number):
        return str(reference)
    if not isinstance(reference, Sequence) or isinstance(reference, bytes):
        return None
    parts = [part for part in map(_hashable, reference) if isinstance(part, str)]
    return tuple(parts) if len(parts) == len(reference) else None
