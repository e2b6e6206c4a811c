"""All tasks by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trl_mentor.tasks.benchmarks import BENCHMARKS
from trl_mentor.tasks.deepmath import DEEPMATH
from trl_mentor.tasks.livecodebench import LIVECODEBENCH
from trl_mentor.tasks.records import Task

TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in (DEEPMATH, LIVECODEBENCH, *BENCHMARKS)})
