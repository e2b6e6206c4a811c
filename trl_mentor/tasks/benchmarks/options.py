"""Benchmarks of questions with several options, one of which is right."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any

from datasets import Dataset

from trl_mentor.tasks.benchmarks.rows import numbered, texts
from trl_mentor.tasks.fields import text
from trl_mentor.tasks.instructions import CHOICE
from trl_mentor.tasks.records import Kind, Problem, Source, Split, Task

LETTERS = ascii_uppercase[:10]
"""The options that `judge_choices` knows."""

CHINESE_CHOICE = "请逐步推理, 并把正确选项的字母写在 \\boxed{} 中。"


def read_mmlu(row: Mapping[str, Any]) -> Problem:
    """question, subject, choices, answer; the answer is the place of the right choice, from 0."""
    choices, answer = texts(row, "choices"), row["answer"]
    if not isinstance(answer, int) or not 0 <= answer < len(choices) <= len(LETTERS):
        raise ValueError(f"answer is {answer!r:.20}, not the place of one of {len(choices)} choices, of at most 10")
    options = [f"{letter}. {choice.strip()}" for letter, choice in zip(LETTERS, choices, strict=False)]
    return Problem(
        str(row["row"]),
        "\n".join([text(row, "question"), *options]),
        answer=LETTERS[answer],
        topic=text(row, "subject"),
    )


def unwrap(papers: Dataset) -> Dataset:
    """The questions of GAOKAO-Bench's files, each of which is one object `{"keywords": ..., "example": [...]}`."""
    questions = [{**row, "keywords": paper["keywords"]} for paper in papers for row in paper["example"]]
    return Dataset.from_list(questions)


def read_gaokao(row: Mapping[str, Any]) -> Problem:
    """year, category, question with its options, standard_answer (earlier: answer) of one letter, index."""
    letters = texts(row, "answer" if "answer" in row else "standard_answer")
    if len(letters) != 1 or letters[0] not in tuple(LETTERS):
        raise ValueError(f"the answer is {letters!r:.40}, not one letter")
    paper = text(row, "keywords")
    return Problem(f"{paper}/{row['index']}", text(row, "question"), answer=letters[0], topic=paper)


MMLU = Task(
    name="mmlu",
    kind=Kind.CHOICE,
    splits={
        "test": Split(
            Source(
                "cais/mmlu",
                "test",
                config="all",
                files=("all/test-*.parquet",),
                revision="c30699e8356da336a370243923dbaf21066bb9fe",
            ),
            numbered,
        )
    },
    read=read_mmlu,
    instruction=CHOICE,
    citation="Hendrycks et al. 2021, MMLU, arXiv:2009.03300, 14,042 test questions, MIT licence",
    unchecked="how MENTOR asked: examples before the question, reasoning or likelihoods (ours: none, reasoning)",
)

GAOKAO_BENCH = Task(
    name="gaokao-bench",
    kind=Kind.CHOICE,
    splits={
        "test": Split(
            Source(
                "https://github.com/OpenLMLab/GAOKAO-Bench",
                "test",
                files=(
                    "Data/Objective_Questions/2010-2022_Math_I_MCQs.json",
                    "Data/Objective_Questions/2010-2022_Math_II_MCQs.json",
                ),
                revision="c214b47c7046d4ef048c77f0a7c5b545dc8d337b",
            ),
            unwrap,
        )
    },
    read=read_gaokao,
    instruction=CHINESE_CHOICE,
    citation="Zhang et al. 2023, GAOKAO-Bench, arXiv:2305.12474, its 432 multiple-choice problems of mathematics",
    unchecked=(
        "which part of GAOKAO-Bench MENTOR used, or whether the English Gaokao2023 of other papers (385 problems)"
    ),
)
