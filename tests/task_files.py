"""Tiny data sets in the genuine formats of DeepMath-103K and LiveCodeBench."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset


def deepmath_row(number: int, **changes: Any) -> dict[str, Any]:
    row = {
        "question": f"What is {number} + {number}?",
        "final_answer": str(2 * number),
        "difficulty": 1.0 + number % 9,
        "topic": "Mathematics -> Algebra -> Prealgebra",
        **{f"r1_solution_{i}": f"<think>{i}</think>" for i in (1, 2, 3)},
    }
    return row | changes


def write_deepmath(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Two files of Parquet where the Hub has ten."""
    rows = list(rows)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        Dataset.from_list(part).to_parquet(folder / "data" / f"train-0000{number}-of-00002.parquet")
    return folder


def stdin_case(given: str, expected: str) -> dict[str, str]:
    return {"input": given, "output": expected, "testtype": "stdin"}


def call_case(arguments: Iterable[Any], expected: Any) -> dict[str, str]:
    """One argument as JSON on each line."""
    given = "\n".join(map(json.dumps, arguments))
    return {"input": given, "output": json.dumps(expected), "testtype": "functional"}


def packed(cases: Any) -> str:
    """Private tests as the data set has them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def livecodebench_row(number: int, **changes: Any) -> dict[str, Any]:
    """A problem of a site that runs whole programs."""
    row = {
        "question_title": f"Sum {number}",
        "question_content": f"Read two numbers and print their sum plus {number}.",
        "platform": "atcoder",
        "question_id": f"abc{number:03}_a",
        "contest_id": f"abc{number:03}",
        "contest_date": f"2024-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00",
        "starter_code": "",
        "difficulty": ("easy", "medium", "hard")[number % 3],
        "public_test_cases": json.dumps([stdin_case("1 2\n", f"{3 + number}\n")]),
        "private_test_cases": packed([stdin_case("5 6\n", f"{11 + number}\n")]),
        "metadata": "{}",
    }
    return row | changes


def call_row(number: int, **changes: Any) -> dict[str, Any]:
    """A problem of a site that calls a method."""
    return livecodebench_row(
        number,
        **{
            "platform": "leetcode",
            "question_id": str(3000 + number),
            "starter_code": "class Solution:\n    def pairs(self, values: List[int], word: str) -> int:\n        ",
            "public_test_cases": json.dumps([call_case([[1, 2], "a"], 3)]),
            "private_test_cases": packed([call_case([[], 'b"\n'], None), call_case([[7], ""], {"x": [1.5, True]})]),
            "metadata": json.dumps({"func_name": "pairs"}),
        }
        | changes,
    )


def write_livecodebench(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Six files, as a release has, though most may be empty."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in rows]
    for number in range(6):
        name = "test.jsonl" if number == 0 else f"test{number + 1}.jsonl"
        (folder / name).write_text("".join(lines[number::6]), encoding="utf-8")
    return folder
