"""Data sets and benchmarks as records, and `load_task`, which turns one into rows for TRL."""

from trl_mentor.tasks.catalog import TASKS
from trl_mentor.tasks.loading import find_task, load_task

__all__ = ["TASKS", "find_task", "load_task"]
