"""`benchmarks/trl_changes.py`, run as a command on small made-up releases and on those that are on this disk."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trl_mentor.contract import ATTRIBUTES, CALLS, PARAMETERS, Generated

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "trl_changes.py"
INSTALLED = Path(importlib.util.find_spec("trl").origin).parent.parent
ON_DISK = [INSTALLED, *Path(sys.prefix).glob("trl-[0-9]*")]
"""The TRL in use, and what `make test-oldest` has put beside it."""

TRAINER = f"""
raise RuntimeError("this source is for reading")
class GRPOTrainer:
    def __init__(self):
        {"; ".join(f"self.{name} = 0" for name in ATTRIBUTES)}
    def _generate_and_score_completions(self, inputs):
        output = self._generate(prompts)
        return self._calculate_rewards(inputs, prompts, completions, completion_ids_list)
    def _generate(self, prompts):
        ids = self._tokenize_prompts(prompts)
        self._sample(ids)
        return {", ".join(Generated._fields)}
    def _sample(self, ids):
        return 1  # a comment
    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        return self._log
    def _log(self):
        pass
    def compute_loss(self, model, inputs):
        return self._compute_loss(model, inputs)
    def _compute_loss(self, model, inputs):
        logps = self._get_per_token_logps_and_entropies(model)
        return inputs["advantages"] * (logps - inputs.get("old_per_token_logps"))
    def _unrelated(self):
        pass
"""
OTHERS = "".join(
    f"    def {name}({', '.join(parameters).replace('...', '*args')}):\n        pass\n"
    for name, parameters in PARAMETERS.items()
    if f"def {name}(" not in TRAINER
)
CONFIG = 'class GRPOConfig(_BaseConfig):\n    beta: float = field(default=0.0, metadata={"help": "old words"})\n'
BASE = "class _BaseConfig:\n    logging_steps: float = 10\n"


def release(folder: Path, *edits: tuple[str, str], version: str = "") -> Path:
    """A directory with a made-up TRL whose sources differ from those above by the given replacements."""
    target = folder / "trl" / "trainer"
    target.mkdir(parents=True)
    for name, text in (("grpo_trainer.py", TRAINER + OTHERS), ("grpo_config.py", CONFIG), ("base_config.py", BASE)):
        for before, after in edits:
            text = text.replace(before, after)
        (target / name).write_text(text)
    if version:
        (folder / f"trl-{version}.dist-info").mkdir()
    return folder


def changes(old: Path | str, new: Path | str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, str(SCRIPT), str(old), str(new)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def statuses(output: str) -> dict[str, str]:
    """`kind name` -> status, as the table says."""
    rows = (re.findall(r"[\w.]+", line) for line in output.splitlines() if line.startswith("│"))
    return {f"{kind} {name}": status for kind, name, status in rows}


def compared(tmp_path: Path, *edits: tuple[str, str], version: str = "") -> tuple[dict[str, str], str, int]:
    done = changes(release(tmp_path / "old"), release(tmp_path / "new", *edits, version=version))
    assert done.stderr == ""
    return statuses(done.stdout), done.stdout, done.returncode


def test_equal_sources_are_unchanged_and_only_what_mentoring_relies_on_is_listed(tmp_path):
    found, output, code = compared(tmp_path)
    methods = {name.removeprefix("method ") for name in found if name.startswith("method")}
    assert methods == {*PARAMETERS, *CALLS, "_sample", "_log"}
    assert {name for name in found if name.startswith("attribute")} == {f"attribute {name}" for name in ATTRIBUTES}
    assert set(found.values()) == {"unchanged"}
    assert "accepted" in output
    assert code == 0


def test_a_changed_callee_is_shown_as_a_diff_and_accepted(tmp_path):
    found, output, code = compared(tmp_path, ("return 1  # a comment", "return 2"))
    assert {name for name, status in found.items() if status == "changed"} == {"method _sample"}
    assert "-        return 1  # a comment" in output
    assert "+        return 2" in output
    assert code == 0


def test_comments_and_help_texts_are_no_changes(tmp_path):
    found, _, _ = compared(tmp_path, ("# a comment", "# another"), ("old words", "new words"))
    assert set(found.values()) == {"unchanged"}


def test_config_fields_that_came_went_or_changed_are_listed(tmp_path):
    found, output, _ = compared(
        tmp_path, ("default=0.0", "default=0.1"), ("logging_steps: float = 10", "other: int = 1")
    )
    config = {name: status for name, status in found.items() if name.startswith("config")}
    assert config == {"config beta": "changed", "config logging_steps": "gone", "config other": "new"}
    assert "+float, default=0.1" in output


@pytest.mark.parametrize(
    ("edit", "part", "reason"),
    [
        (("self, inputs, prompts, c", "self, prompts, c"), "method _calculate_rewards", "_calculate_rewards takes"),
        (("def _tokenize_prompts", "def _encode"), "method _tokenize_prompts", "_tokenize_prompts is gone"),
        (("def _generate(", "def _roll_out("), "method _generate", "_generate is gone"),
        (("self._pending_metrics = 0", "pass"), "attribute _pending_metrics", "does not set self._pending_metrics"),
        (("return prompt_ids, ", "return "), "return _generate", "_generate returns"),
        (("= self._generate(", "= self.engine("), "method _generate_and_score_completions", "does not call"),
    ],
)
def test_what_the_contract_would_refuse_ends_with_code_1_and_the_reason(tmp_path, edit, part, reason):
    found, output, code = compared(tmp_path, edit)
    assert found[part] in {"changed", "gone"}
    assert reason in output.partition("refused: ")[2]
    assert code == 1


def test_a_version_outside_the_range_ends_with_code_1_though_nothing_changed(tmp_path):
    found, output, code = compared(tmp_path, version="99.0")
    assert set(found.values()) == {"unchanged"}
    assert "refused: mentoring was tested with" in output
    assert code == 1


def test_a_directory_without_trl_ends_with_code_2(tmp_path):
    done = changes(release(tmp_path / "old"), tmp_path)
    assert done.returncode == 2
    assert "grpo_trainer.py" in done.stderr


def test_neither_trl_nor_torch_is_imported(tmp_path):
    done = changes(release(tmp_path / "old"), release(tmp_path / "new"), "-X", "importtime")
    assert re.search(r"\| +trl_mentor\.contract$", done.stderr, re.MULTILINE)
    assert not re.search(r"\| +(trl|torch)$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize("old", ON_DISK, ids=lambda path: path.name)
def test_the_installed_trl_is_accepted_and_every_part_is_found_in_it(old):
    done = changes(old, INSTALLED)
    assert done.returncode == 0, done.stdout
    parts = {name: status for name, status in statuses(done.stdout).items() if not name.startswith("config")}
    assert {"method _generate_single_turn", "method _log_completion_extra", "return _generate"} <= set(parts)
    assert set(parts.values()) <= {"unchanged", "changed"}
