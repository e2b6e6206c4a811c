"""Benchmarks of Python functions."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from typing import Any

from trl_mentor.programs.tests import ProgramTests, Style
from trl_mentor.tasks.benchmarks.rows import texts, whole_number
from trl_mentor.tasks.fields import text
from trl_mentor.tasks.instructions import FUNCTION
from trl_mentor.tasks.records import Kind, Problem, Source, Split, Task

_DEFINED = re.compile(r"(?m)^def[ \t]+(\w+)")
_CALLED = re.compile(r"(?<![\w.])([^\W\d]\w*)[ \t]*\(")
_NOT_ASKED_FOR = {*dir(builtins), "assert", "not", "in", "and", "or"}


def read_humaneval(row: Mapping[str, Any]) -> Problem:
    """task_id, prompt, entry_point, canonical_solution, test."""
    prompt, test = text(row, "prompt"), text(row, "test")
    tests = ProgramTests(Style.ASSERTS, entry_point=text(row, "entry_point"), program=test, setup=row["prompt"])
    question = f"Complete this Python function.\n\n```python\n{prompt}\n```"
    return Problem(text(row, "task_id"), question, tests=tests.to_json())


def read_mbpp(row: Mapping[str, Any]) -> Problem:
    """task_id, text, code, test_list, test_setup_code, challenge_test_list; the last are not used.

    What sets up the tests may use what the program defines, so that it belongs to the tests.
    """
    setup = [row["test_setup_code"]] if row.get("test_setup_code") else []
    return _mbpp(row, text(row, "text"), "\n".join([*setup, *texts(row, "test_list")]))


def read_mbpp_sanitized(row: Mapping[str, Any]) -> Problem:
    """source_file, task_id, prompt, code, test_imports, test_list."""
    imports = "\n".join(texts(row, "test_imports"))
    return _mbpp(row, text(row, "prompt"), "\n".join(texts(row, "test_list")), setup=imports)


def _mbpp(row: Mapping[str, Any], asked: str, program: str, *, setup: str = "") -> Problem:
    """Without the tests the name of the function would be unknown: they are shown, as is the custom for MBPP."""
    entry_point = _asked_for(text(row, "code"), program)
    tests = ProgramTests(Style.ASSERTS, entry_point=entry_point, program=program, setup=setup)
    question = f"{asked}\n\nThe program has to pass these tests:\n\n```python\n{program}\n```"
    return Problem(whole_number(row, "task_id"), question, tests=tests.to_json())


def _mbpp_source(config: str) -> Source:
    return Source(
        "google-research-datasets/mbpp",
        "test",
        config=config,
        files=(f"{config}/test-*.parquet",),
        revision="4bb6404fdc6cacfda99d4ac4205087b89d32030c",
    )


def _asked_for(solution: str, program: str) -> str:
    """The function that the tests are about: the first that they call and that the reference solution defines."""
    called: list[str] = [name for name in _CALLED.findall(program) if name not in _NOT_ASKED_FOR]
    defined = set(_DEFINED.findall(solution))
    name = next((name for name in called if name in defined), None) or next(iter(called), None)
    if name is None:
        raise ValueError(f"test_list calls no function: {program!r:.80}")
    return name


def read_bigcodebench(row: Mapping[str, Any]) -> Problem:
    """task_id, complete_prompt, instruct_prompt, canonical_solution, code_prompt, test, entry_point, doc_struct, libs.

    Its tests are run by its own harness.
    """
    return Problem(text(row, "task_id"), text(row, "instruct_prompt"))


_HUMANEVAL = Source("openai/openai_humaneval", "test", revision="7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544")

HUMANEVAL = Task(
    name="humaneval",
    kind=Kind.CODE,
    splits={"test": Split(_HUMANEVAL)},
    read=read_humaneval,
    instruction=FUNCTION,
    citation="Chen et al. 2021, HumanEval, arXiv:2107.03374, 164 problems, MIT licence",
)

MBPP = Task(
    name="mbpp",
    kind=Kind.CODE,
    splits={"test": Split(_mbpp_source("full"))},
    read=read_mbpp,
    instruction=FUNCTION,
    citation="Austin et al. 2021, MBPP, arXiv:2108.07732, 500 test problems, CC-BY-4.0",
    unchecked="that MENTOR used this part of MBPP, and examples before the question (ours: none)",
)

MBPP_SANITIZED = Task(
    name="mbpp-sanitized",
    kind=Kind.CODE,
    splits={"test": Split(_mbpp_source("sanitized"))},
    read=read_mbpp_sanitized,
    instruction=FUNCTION,
    citation="Austin et al. 2021, MBPP, arXiv:2108.07732, the 257 test problems that its authors revised, CC-BY-4.0",
)

BIGCODEBENCH = Task(
    name="bigcodebench",
    kind=Kind.CODE,
    splits={
        "test": Split(
            Source(
                "bigcode/bigcodebench",
                "v0.1.4",
                files=("data/v0.1.4-*.parquet",),
                revision="b74c0d0bf70d2c0bc459be537895cca163007f1a",
            )
        )
    },
    read=read_bigcodebench,
    instruction=FUNCTION,
    citation="Zhuo et al. 2024, BigCodeBench, arXiv:2406.15877, its 1,140 instructions (Instruct), Apache-2.0",
    unchecked="that MENTOR used Instruct and not Complete",
    export="bigcodebench",
)
