"""Mathematical benchmarks whose answers are values or expressions.

The pinned commits are those of the harnesses that docs/benchmarks.md names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trl_mentor.tasks.benchmarks.rows import numbered, texts, whole_number
from trl_mentor.tasks.fields import optional_number, optional_text, text
from trl_mentor.tasks.instructions import MATH
from trl_mentor.tasks.records import Kind, Problem, Source, Split, Task

_DOLLAR = re.compile(r"(?<!\\)\$")
_AIME_ANSWER = re.compile(r"(\d{1,3})(?:\s*\^?\s*\{?\\circ\}?)?")


def read_aime24(row: Mapping[str, Any]) -> Problem:
    """ID, Problem, Solution, Answer."""
    return Problem(text(row, "ID"), text(row, "Problem"), answer=_aime_answer(row["Answer"]))


def read_aime25(row: Mapping[str, Any]) -> Problem:
    """id, problem, answer."""
    return Problem(whole_number(row, "id"), text(row, "problem"), answer=_aime_answer(row["answer"]))


def _aime_answer(value: Any) -> str:
    r"""An integer from 0 to 999; copies of AIME also write `033` and `336^\circ`."""
    found = _AIME_ANSWER.fullmatch(str(value).strip())
    if found is None:
        raise ValueError(f"the answer is {value!r:.40}, not an integer from 0 to 999")
    return str(int(found[1]))


def read_math500(row: Mapping[str, Any]) -> Problem:
    """problem, solution, answer, subject, level, unique_id."""
    return Problem(
        text(row, "unique_id"),
        text(row, "problem"),
        answer=text(row, "answer"),
        topic=optional_text(row, "subject"),
        difficulty=optional_number(row, "level"),
    )


def read_gsm8k(row: Mapping[str, Any]) -> Problem:
    """question, answer; the answer is a worked solution that ends in `#### 1,234`."""
    _, found, result = text(row, "answer").rpartition("####")
    if not found or not result.strip():
        raise ValueError("answer does not end in #### and a number")
    return Problem(str(row["row"]), text(row, "question"), answer=result.strip().replace(",", ""))


def read_olympiadbench(row: Mapping[str, Any]) -> Problem | None:
    """id, subfield, question, final_answer, is_multiple_answer, unit, answer_type, error.

    Several answers are one text with commas, as in `["$(1,8), (2,7)$"]`.
    """
    if "Need_human_evaluate" in (optional_text(row, "answer_type") or ""):
        return None
    answers = texts(row, "final_answer")
    if not any(answers):
        raise ValueError("final_answer is empty")
    asked = [text(row, "question")]
    if row.get("is_multiple_answer"):
        asked.append("There are several answers: put all of them into one box, with commas between them.")
    if unit := optional_text(row, "unit"):
        asked.append(f"Give the answer in the unit {unit}, and put it into the box without the unit.")
    return Problem(
        whole_number(row, "id"),
        "\n\n".join(asked),
        answer=", ".join(_DOLLAR.sub("", answer).strip() for answer in answers),
        topic=optional_text(row, "subfield"),
    )


AIME24 = Task(
    name="aime24",
    kind=Kind.MATH,
    splits={
        "test": Split(Source("Maxwell-Jia/AIME_2024", "train", revision="8d88b2876a82a080e2f172cc9b25d0d9d2cb4792"))
    },
    read=read_aime24,
    instruction=MATH,
    citation="American Invitational Mathematics Examination 2024 I and II, 30 problems, as transcribed by M. Jia",
)

AIME25 = Task(
    name="aime25",
    kind=Kind.MATH,
    splits={"test": Split(Source("math-ai/aime25", "test", revision="563bb8404243c5f09de6ec262f2db674fe5bce9b"))},
    read=read_aime25,
    instruction=MATH,
    citation="American Invitational Mathematics Examination 2025 I and II, 30 problems, as transcribed by math-ai",
    unchecked="that it is the copy of AIME 2025 which MENTOR cites as 'Zhang and Team'",
)

MATH500 = Task(
    name="math500",
    kind=Kind.MATH,
    splits={
        "test": Split(Source("HuggingFaceH4/MATH-500", "test", revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be"))
    },
    read=read_math500,
    instruction=MATH,
    citation="500 problems of MATH (Hendrycks et al. 2021, MIT licence) chosen by Lightman et al. 2023",
)

GSM8K = Task(
    name="gsm8k",
    kind=Kind.MATH,
    splits={
        "test": Split(
            Source(
                "openai/gsm8k",
                "test",
                config="main",
                files=("main/test-*.parquet",),
                revision="cc7b047b6e5bb11b4f1af84efc572db110a51b3c",
            ),
            numbered,
        )
    },
    read=read_gsm8k,
    instruction=MATH,
    citation="Cobbe et al. 2021, GSM8K, arXiv:2110.14168, 1,319 test problems, MIT licence",
)

OLYMPIADBENCH = Task(
    name="olympiadbench",
    kind=Kind.MATH,
    splits={
        "test": Split(
            Source(
                "Hothan/OlympiadBench",
                "train",
                config="OE_TO_maths_en_COMP",
                files=("OlympiadBench/OE_TO_maths_en_COMP/OE_TO_maths_en_COMP.parquet",),
                revision="91184b52131e7fc9455fef848035173aea8cc01a",
            )
        )
    },
    read=read_olympiadbench,
    instruction=MATH,
    citation="He et al. 2024, OlympiadBench, arXiv:2402.14008, 674 English problems without pictures, Apache-2.0",
    unchecked=(
        "that MENTOR used this part of it (other papers report 675 problems of another copy); how many problems allow "
        "for an error, which is not applied: numbers have to agree to six digits"
    ),
)
