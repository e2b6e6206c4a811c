"""What docs/launch.md tells people to type and to look for exists."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from accelerate.commands.launch import launch_command_parser

from trl_mentor.cli.grpo import ARGUMENTS
from trl_mentor.cli.main import COMMANDS
from trl_mentor.cli.recipe import TRAINING_MODULE, WordsParser, launch_arguments, parse_recipe
from trl_mentor.config import MentorGRPOConfig
from trl_mentor.counters import Counters
from trl_mentor.metrics import batch_metrics

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "launch.md").read_text(encoding="utf-8")
PROSE, *FENCED = re.split(r"^```", PAGE, flags=re.MULTILINE)
BLOCKS, PROSE = FENCED[::2], "".join([PROSE, *FENCED[1::2]])
CODE = [line for block in BLOCKS if block.startswith("\n") for line in block.splitlines()]
INLINE = re.findall(r"`([^`\n]+)`", PROSE)
(RECIPE,) = (block.removeprefix("yaml\n") for block in BLOCKS if block.startswith("yaml"))
SETTINGS = {field.name: field.default for field in fields(MentorGRPOConfig)}
LOGGED_BY_TRL = {"step_time"}


def commands(word: str) -> list[list[str]]:
    """The page's commands that run this program, as words, without what comes before it."""
    split = [shlex.split(line) for line in CODE if word in line.split()]
    return [words[words.index(word) :] for words in split]


def test_every_file_that_the_page_names_exists():
    named = set(re.findall(r"\b(?:accelerate_configs|benchmarks|tests)/[\w.]+", PAGE))
    assert {name for name in named if not (ROOT / name).is_file()} == set()
    configs = {path.name for path in (ROOT / "accelerate_configs").iterdir()}
    assert {name.partition("/")[2] for name in named if name.startswith("accelerate_configs/")} == configs


def test_every_metric_that_the_page_names_is_logged():
    named = set(re.findall(r"`(mentor/\w+)`", PAGE))
    assert named
    assert named <= set(batch_metrics(Counters(lessons=1)))


def test_every_setting_that_the_page_names_is_a_setting():
    words = {text.partition(":")[0] for text in INLINE}
    named = {word for word in words if re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", word)} - LOGGED_BY_TRL
    assert {"mentor_deadline", "steps_per_generation", "ddp_timeout"} <= named
    assert named | set(re.findall(r"^(\w+):", RECIPE, re.MULTILINE)) <= set(SETTINGS)


@pytest.mark.parametrize("name", ["mentor_call_timeout", "mentor_deadline", "ddp_timeout"])
def test_the_page_states_the_default_of_a_timeout(name):
    (seconds,) = re.findall(rf"^\| `{name}` \| (\d+) s \|", PAGE, re.MULTILINE)
    assert float(seconds) == SETTINGS[name]


def test_the_page_states_the_default_of_the_concurrency():
    assert f"The default is {SETTINGS['mentor_max_concurrency']}." in PAGE


def test_every_training_command_is_understood(tmp_path, monkeypatch):
    (tmp_path / "grpo.yaml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "accelerate_configs").symlink_to(ROOT / "accelerate_configs")
    monkeypatch.chdir(tmp_path)
    runs = [words[2:] for words in commands("trl-mentor")]
    assert len(runs) == 2
    for words in runs:
        (left,) = parse_recipe(WordsParser(ARGUMENTS, prog="trl-mentor grpo"), words)
        assert launch_arguments(left).config_file.startswith("accelerate_configs/")


def test_every_launch_command_runs_the_training_module_on_whole_machines():
    (words,) = commands("accelerate")
    given = launch_command_parser().parse_args(words[2:])
    assert (given.module, given.training_script) == (True, TRAINING_MODULE)
    assert given.training_script_args == ["--config", "grpo.yaml"]
    assert given.num_processes % given.num_machines == 0
    assert (ROOT / given.config_file).is_file()


def test_mentor_and_policy_get_gpus_of_their_own_and_a_process_each():
    shared = [line for line in CODE if line.startswith("CUDA_VISIBLE_DEVICES=")]
    mentor, policy = (line.split()[0].partition("=")[2].split(",") for line in shared)
    assert set(mentor).isdisjoint(policy)
    assert f"--tensor-parallel-size {len(mentor)} " in shared[0]
    assert shared[1].endswith(f"--num_processes {len(policy)}")


def test_every_subcommand_that_the_page_names_exists():
    named = {text.split()[1] for text in INLINE if text.startswith("trl-mentor ")}
    named |= {words[1] for words in commands("trl-mentor")}
    assert named == {"grpo", "plan"}
    assert named <= set(COMMANDS)
