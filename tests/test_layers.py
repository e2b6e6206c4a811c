"""Who may import whom: each module has a layer and imports only from its own or a lower one.

A new module gets one line in `LAYERS`. The table with its reasons is in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "trl_mentor"

LAYERS = {
    "records": 0,
    "errors": 0,
    "alarms": 1,
    "answer_forms": 1,
    "assembly": 1,
    "bill": 1,
    "books": 5,
    "budget": 1,
    "budget_limits": 1,
    "causes": 1,
    "collapse": 1,
    "comparison": 1,
    "counters": 1,
    "dosage": 1,
    "echo": 1,
    "stall": 1,
    "unhinted_echo": 1,
    "events": 1,
    "journal": 1,
    "journal_table": 1,
    "markdown": 1,
    "metrics": 1,
    "packing": 1,
    "plain": 1,
    "plan_records": 1,
    "priority": 1,
    "planning": 1,
    "breaker": 1,
    "checkpoints": 1,
    "quoting": 1,
    "reask": 1,
    "replies": 1,
    "reply_cache": 1,
    "refill": 1,
    "reroll": 1,
    "reward_errors": 5,
    "rescue": 1,
    "spending": 1,
    "tallies": 1,
    "transfer": 1,
    "rounds": 1,
    "trial": 1,
    "uplift": 1,
    "setting_checks": 1,
    "settings": 1,
    "strategy_settings": 1,
    "backends": 2,
    "channel": 2,
    "mentor_pool": 2,
    "leaks": 2,
    "programs": 2,
    "rewards": 2,
    "sandbox": 2,
    "templating": 2,
    "workers": 2,
    "agents": 3,
    "calls": 4,
    "endpoints": 4,
    "factory": 4,
    "lesson_queue": 4,
    "mentor": 4,
    "schedules": 4,
    "strategies": 4,
    "tutorial": 4,
    "arms": 5,
    "batch_outcome": 5,
    "batch_parts": 5,
    "batch_plan": 5,
    "callback": 5,
    "closing": 5,
    "config": 5,
    "contract": 5,
    "empty_steps": 5,
    "engine_limit": 5,
    "evaluation": 5,
    "exchange": 5,
    "fitting": 5,
    "grpo_trainer": 5,
    "group_reader": 5,
    "guards": 5,
    "intervene": 5,
    "interventions": 5,
    "limits": 5,
    "merging": 1,
    "probe": 5,
    "reliance": 5,
    "returns": 5,
    "reflecting": 5,
    "report": 5,
    "model_card": 5,
    "rolling": 5,
    "rows": 5,
    "tasks": 5,
    "trackers": 5,
    "vllm_cpu": 5,
    "weighting": 5,
    "wiring": 5,
    "cli": 6,
    "demo": 6,
}
"""Top-level module or package -> layer."""

TORCH_FREE = 4
"""The highest layer that can be imported without torch."""

HEAVY = {"accelerate", "datasets", "torch", "transformers", "trl"}
THIRD_PARTY = {2: {"jinja2", "aiohttp"}, 3: {"pydantic"}}
"""What layers 0-4 may import besides the standard library; layer 5 and up may import anything."""

EXCEPTIONS = {
    # Its one purpose is to run a model in this process; nothing imports it unless it is asked for.
    "backends/padded.py": {"torch", "transformers"},
    "backends/transformers.py": {"torch", "transformers"},
    # The same with an engine; torch-free until it is constructed.
    "backends/vllm.py": {"vllm"},
    # Reads mathematics with math-verify, in a process of its own.
    "leaks/math_worker.py": {"math_verify", "sympy"},
    "rewards/math_names.py": {"latex2sympy2_extended", "sympy"},
    "rewards/math_worker.py": {"latex2sympy2_extended", "math_verify", "sympy"},
    # The journal as a table, imported only when one is asked for.
    "journal_table.py": {"datasets"},
    # Intervals of shares.
    "uplift.py": {"scipy"},
    # Intervals over seeds.
    "comparison/intervals.py": {"scipy"},
}

SEAM = {"grpo_trainer.py", "contract.py", "vllm_cpu.py"}
"""The files that may use TRL's private names: the trainer, the probe that checks them for it, and a repaired sync."""


def imports(tree: ast.AST) -> Iterator[str]:
    """Every dotted name that the module imports, wherever in the file; a relative one starts with its dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level + (node.module or "")
            elif node.module == "trl_mentor":
                yield from (f"trl_mentor.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def type_checker_imports(tree: ast.AST) -> set[str]:
    """Names imported under `if TYPE_CHECKING`, which never run."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    return {name for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING" for name in imports(node)}


def import_problems(file: str, source: str) -> list[str]:
    """What is wrong with the imports of one file; `file` is relative to the package."""
    top = Path(file).parts[0].removesuffix(".py")
    if top not in LAYERS:
        return [f"{file}: {top!r} has no layer; add one line for it to LAYERS in tests/test_layers.py"]
    layer, found = LAYERS[top], []
    allowed = THIRD_PARTY.get(layer, set()) | EXCEPTIONS.get(file, set())
    tree = ast.parse(source)
    typed = type_checker_imports(tree)
    for name in imports(tree):
        root, _, rest = name.partition(".")
        if root == "trl_mentor":
            target = rest.partition(".")[0]
            if target not in LAYERS:
                found.append(f"{file}: imports {name}, which has no layer; import from the module that defines it")
            elif LAYERS[target] > layer:
                found.append(f"{file}: layer {layer} imports {name} of layer {LAYERS[target]}; turn the import around")
        elif not root:
            found.append(f"{file}: relative import {name!r}; write the absolute one")
        elif layer <= TORCH_FREE and root not in sys.stdlib_module_names | allowed and name not in typed:
            found.append(f"{file}: layer {layer} imports {root}; move that code to a layer that may")
    return found


def trl_private_names() -> set[str]:
    """Private names that TRL's GRPO trainer defines on itself, read from its source without importing it."""
    spec = importlib.util.find_spec("trl")
    source = Path(spec.origin).parent.joinpath("trainer", "grpo_trainer.py").read_text(encoding="utf-8")
    return defined_names(ast.parse(source))


def defined_names(tree: ast.AST) -> set[str]:
    """Single-underscore names that a module defines: functions, and attributes that it assigns on `self`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return {name for name in names if is_private(name)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_problems(file: str, source: str, trl_names: set[str]) -> list[str]:
    """Uses of TRL's private names in one file: imports, attributes and `getattr`-like access."""
    if file in SEAM:
        return []
    tree, used = ast.parse(source), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in trl_names:
            used.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "trl":
            parts = [*node.module.split("."), *(alias.name for alias in node.names)]
            used.update(part for part in parts if is_private(part))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"getattr", "setattr"}:
            used.update(arg.value for arg in node.args if isinstance(arg, ast.Constant) and arg.value in trl_names)
    return [
        f"{file}: uses TRL's private {name}; only the trainer and its contract may"
        for name in sorted(used - defined_names(tree))
    ]


def files() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def torch_free_modules() -> list[str]:
    names = []
    for path in files():
        file = path.relative_to(PACKAGE)
        if LAYERS.get(file.parts[0].removesuffix(".py"), 99) <= TORCH_FREE and file.as_posix() not in EXCEPTIONS:
            names.append(".".join(("trl_mentor", *file.with_suffix("").parts)).removesuffix(".__init__"))
    return names


def test_every_module_imports_only_from_its_own_layer_or_below():
    problems = [
        problem
        for path in files()
        for problem in import_problems(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not problems, "\n".join(problems)


def test_the_map_names_no_module_that_is_gone():
    there = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in files()}
    assert set(LAYERS) == there


def test_the_table_for_contributors_has_each_module_in_its_layer():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if re.match(r"\| \d \|", line)]
    listed = [(name, int(row[1])) for row in rows for name in re.findall(r"`(\w+)/?`", row[3])]
    assert sorted(listed) == sorted(LAYERS.items())


def test_only_the_trainer_and_its_contract_touch_private_names_of_trl():
    names = trl_private_names()
    assert {"_generate", "_calculate_rewards", "_metrics"} <= names
    problems = [
        problem
        for path in files()
        for problem in private_problems(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8"), names)
    ]
    assert not problems, "\n".join(problems)


def test_layers_up_to_four_import_without_torch():
    modules = torch_free_modules()
    assert "trl_mentor.records" in modules
    code = f"import sys, {', '.join(modules)}; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("collapse.py", "from trl_mentor.mentor import Mentor", "layer 1 imports trl_mentor.mentor of layer 4"),
        ("collapse.py", "from trl_mentor import mentor", "layer 1 imports trl_mentor.mentor of layer 4"),
        ("collapse.py", "from trl_mentor import Mentor", "import from the module that defines it"),
        ("records.py", "def f():\n    import torch", "layer 0 imports torch"),
        ("strategies/mentor.py", "import trl.trainer", "layer 4 imports trl"),
        ("journal.py", "import pandas as pd", "layer 1 imports pandas"),
        ("agents.py", "from . import records", "write the absolute one"),
        ("collapse.py", "if TYPE_CHECKING:\n    from trl_mentor.mentor import Mentor", "turn the import around"),
        ("novelty.py", "import json", "add one line for it to LAYERS"),
    ],
)
def test_the_import_check_catches_a_planted_violation(file, source, complaint):
    (problem,) = import_problems(file, source)
    assert complaint in problem


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("backends/transformers.py", "import torch\nfrom transformers import AutoTokenizer"),
        ("templating.py", "import jinja2\nfrom trl_mentor.errors import TemplateError"),
        ("journal.py", "if TYPE_CHECKING:\n    from datasets import Dataset"),
        ("grpo_trainer.py", "import torch\nfrom trl import GRPOTrainer\nfrom trl_mentor.collapse import classify"),
    ],
)
def test_the_import_check_lets_allowed_imports_pass(file, source):
    assert import_problems(file, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "trainer._metrics['train']['x'].append(1)",
        "getattr(trainer, '_metrics')",
        "from trl.trainer.grpo_trainer import _metrics",
    ],
)
def test_the_private_name_check_catches_a_planted_use(source):
    (problem,) = private_problems("callback.py", source, {"_metrics"})
    assert "_metrics" in problem
    assert private_problems("grpo_trainer.py", source, {"_metrics"}) == []


def test_the_private_name_check_knows_a_modules_own_names():
    source = "class Cache:\n    def __init__(self):\n        self._metrics = {}\n        self._metrics.clear()\n"
    assert private_problems("callback.py", source, {"_metrics"}) == []
