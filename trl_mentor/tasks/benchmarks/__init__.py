"""Benchmarks as records, each a task with the split `test`. How to add one: docs/benchmarks.md."""

from __future__ import annotations

from trl_mentor.tasks.benchmarks.answers import AIME24, AIME25, GSM8K, MATH500, OLYMPIADBENCH
from trl_mentor.tasks.benchmarks.code import BIGCODEBENCH, HUMANEVAL, MBPP, MBPP_SANITIZED
from trl_mentor.tasks.benchmarks.options import GAOKAO_BENCH, MMLU

BENCHMARKS = (
    AIME24,
    AIME25,
    MATH500,
    GSM8K,
    GAOKAO_BENCH,
    OLYMPIADBENCH,
    HUMANEVAL,
    MBPP,
    MBPP_SANITIZED,
    BIGCODEBENCH,
    MMLU,
)
