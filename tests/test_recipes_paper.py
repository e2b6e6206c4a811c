"""The recipes of the paper: they say what the paper says, and each trains a step of a model that is not its own."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tiny
import yaml
from task_files import deepmath_row, livecodebench_row, write_deepmath, write_livecodebench
from test_check import Endpoint, endpoint  # noqa: F401  # a fixture

from trl_mentor import read_journal
from trl_mentor.cli import eval as evaluation
from trl_mentor.cli import plan
from trl_mentor.cli.grpo import ARGUMENTS, parse, train
from trl_mentor.cli.main import COMMANDS
from trl_mentor.cli.recipe import TRAINING_MODULE, WordsParser, launch_arguments, parse_recipe
from trl_mentor.errors import ConfigError
from trl_mentor.records import Ablation, HintOrigin
from trl_mentor.tasks import TASKS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "recipes" / "paper"
RECIPES = sorted(FOLDER.glob("*.yaml"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")
CODE = [line for block in re.split(r"^```", README, flags=re.MULTILINE)[1::2] for line in block.splitlines()]
POSITIONS = 4096

by_recipe = pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def origins(path: Path) -> dict[str, str]:
    """Key -> what its comment says."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {line.partition(":")[0]: line.partition("  # ")[2] for line in lines}


@pytest.fixture(scope="module")
def scripts() -> dict[str, ModuleType]:
    """`table`, `make` and `sweep` of the folder, which run from there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        return {name: import_module(name) for name in ("table", "make", "sweep")}


# What they say


def test_the_files_are_what_the_table_makes(scripts):
    made = scripts["make"].recipe_files()
    assert made == {path.name: path.read_text(encoding="utf-8") for path in RECIPES}


@by_recipe
def test_every_line_says_whether_the_paper_states_it_or_it_is_ours(path):
    said = origins(path)
    assert set(said) == set(read(path))
    assert {key: text for key, text in said.items() if not re.match(r"(paper \d(\.\d)*|ours)(: |; |$)", text)} == {}


def test_what_the_paper_states_is_what_the_recipes_for_its_rows_have():
    for path in RECIPES:
        if path.stem.endswith("_one_gpu"):
            continue
        recipe = read(path)
        assert (recipe["num_train_epochs"], recipe["learning_rate"], recipe["num_generations"]) == (1, 1e-6, 4)
        assert (recipe["mentor_model"], recipe["mentor_max_retry"]) == ("Qwen/Qwen3-32B", 2)
        assert recipe["task"] == ("deepmath-103k" if path.stem.endswith("_math") else "livecodebench")
    assert read(FOLDER / "qwen3_4b_math.yaml")["mentor_max_refine"] == 2
    assert read(FOLDER / "llama3.2_3b_math.yaml")["mentor_max_refine"] == 3


@by_recipe
def test_a_batch_is_whole_groups_and_all_lengths_fit_the_model(path, scripts):
    recipe = read(path)
    processes = 1 if path.stem.endswith("_one_gpu") else scripts["table"].PROCESSES
    rows = processes * recipe["per_device_train_batch_size"] * recipe["gradient_accumulation_steps"]
    choice = next(choice for choice in scripts["table"].TASKS.values() if choice.task == recipe["task"])
    groups, rest = divmod(rows, recipe["num_generations"])
    assert (groups, rest) == (12 if processes == 1 else choice.groups, 0)
    assert f"{groups} problems a step, {choice.problems // groups} steps" in path.read_text(encoding="utf-8")
    policies = {recipe.policy.repo: recipe.policy for recipe in scripts["table"].RECIPES}
    prompt = recipe["vllm_max_model_length"] - recipe["max_completion_length"]
    assert recipe["vllm_max_model_length"] <= policies[recipe["model_name_or_path"]].context
    # 2.5 characters a token, and 300 tokens for the hint, as docs/launch.md advises.
    assert recipe["task_max_prompt_chars"] / 2.5 + 300 <= prompt
    assert recipe["mentor_call_timeout"] < recipe["mentor_deadline"] < 0.9 * recipe["ddp_timeout"]


# What they do


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with room for the prompts of the tasks, where a recipe's own model would be downloaded."""
    folder = tmp_path_factory.mktemp("policy")
    made = tiny.model()
    made.config.max_position_embeddings = POSITIONS
    made.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def task_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A few rows of each training set in the files that the Hub has."""
    folder = tmp_path_factory.mktemp("tasks")
    return {
        "deepmath-103k": write_deepmath(folder / "math", (deepmath_row(i) for i in range(16))),
        "livecodebench": write_livecodebench(folder / "code", (livecodebench_row(i) for i in range(12))),
    }


def on_a_cpu(path: Path, **settings: Any) -> list[str]:
    """A recipe's command line with what a machine without GPUs needs to accept it, and `settings`."""
    own = {"use_cpu": "true", "bf16": "false", "use_vllm": "false", **settings}
    return ["--config", str(path), *(word for name, value in own.items() for word in (f"--{name}", str(value)))]


@by_recipe
def test_a_recipe_trains_a_step_with_its_task_its_rewards_and_its_mentor(
    path,
    policy,
    task_files,
    endpoint,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    recipe = read(path)
    monkeypatch.setenv("TRL_MENTOR_CACHE", str(tmp_path / "tests"))
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-of-the-test")
    changes = {
        "model_name_or_path": policy,
        "task_files": task_files[recipe["task"]],
        "output_dir": tmp_path / "run",
        "mentor_base_url": endpoint.url,
        "mentor_model": "mentor",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "max_completion_length": 8,
        "max_steps": 1,
    }
    train(*parse(on_a_cpu(path, **changes)))
    groups = read_journal(tmp_path / "run")
    assert len(groups) == 2
    # Every completion of so small a model is cut off, and the recipes hint every collapsed group.
    assert {group.guidance.origin for group in groups} == {HintOrigin.ACCEPTED}
    saved = {file.name for file in (tmp_path / "run").iterdir()}
    assert ("adapter_model.safetensors" in saved) == recipe.get("use_peft", False)


def test_a_misspelt_key_of_a_recipe_is_refused_by_name(tmp_path):
    text = (FOLDER / "qwen3_4b_math.yaml").read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace("mentor_max_refine:", "mentor_max_refin:"), encoding="utf-8")
    with pytest.raises(ConfigError, match="mentor_max_refin"):
        parse(on_a_cpu(wrong))


# Sweeps


def assert_trains(words: list[str]) -> None:
    """All words of `trl-mentor grpo` are known to the training or to `accelerate launch`; the launch file exists."""
    (left,) = parse_recipe(WordsParser(ARGUMENTS, prog="trl-mentor grpo"), words)
    assert Path(launch_arguments(left).config_file).is_file()


def test_there_is_a_command_for_each_row_and_each_is_understood(scripts, monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = scripts["sweep"].rows()
    counts = {place: sum(row.place == place for row in rows) for place in scripts["sweep"].PLACES}
    assert counts == {"table1": 8, "table2": 8, "table3": 2, "table4": 4, "figure4": 24, "controls": 8}
    commands = {row.output_dir: row.training() for row in rows}
    assert len({tuple(words) for words in commands.values()}) == len(commands) == 43
    for words in commands.values():
        assert words[:2] == ["trl-mentor", "grpo"]
        assert_trains(words[2:])
    ablations = {value for row in rows for name, value in row.settings if name == "mentor_ablation"}
    assert ablations == {str(ablation) for ablation in Ablation}


def test_every_evaluation_is_understood_and_comes_after_what_it_is_compared_with(scripts):
    known: set[Path] = set()
    for words in scripts["sweep"].evaluations(scripts["sweep"].rows()):
        given = evaluation.make_parser().parse_args(words[2:])
        assert set(given.benchmarks) <= set(TASKS)
        assert given.base is None or given.base in known
        known.add(given.output)


def test_a_dry_run_prints_commands_and_names_the_rows_that_cannot_be_made():
    command = [sys.executable, str(FOLDER / "sweep.py"), "table4", "table1", "--dry-run", "--", "--max_steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    printed = done.stdout.splitlines()
    commands = [line for line in printed if not line.startswith("#")]
    assert len(commands) == 12
    assert all(line.endswith(" --max_steps 2") for line in commands)
    assert "cannot make yet: DAPO, Critique-GRPO" in printed[0]


def test_a_training_whose_model_is_saved_is_not_run_again(scripts, tmp_path, monkeypatch):
    row = next(row for row in scripts["sweep"].rows() if row.settings)
    monkeypatch.setattr(scripts["sweep"], "ROOT", tmp_path)
    assert not scripts["sweep"].finished(row)
    (tmp_path / row.output_dir).mkdir(parents=True)
    (tmp_path / row.output_dir / "model.safetensors").touch()
    assert scripts["sweep"].finished(row)


# Commands of the page


def commands(word: str) -> list[list[str]]:
    """The page's commands that run this program, as words, without what comes before it."""
    split = [shlex.split(line) for line in CODE if word in line.split()]
    return [words[words.index(word) :] for words in split]


def test_every_trl_mentor_command_of_the_page_and_of_the_recipes_is_understood(monkeypatch):
    monkeypatch.chdir(ROOT)
    parsers = {"eval": evaluation.make_parser(), "plan": plan.make_parser()}
    given = commands("trl-mentor")
    heads = [
        line for path in RECIPES for line in path.read_text(encoding="utf-8").splitlines() if "trl-mentor grpo" in line
    ]
    assert len(heads) == len(RECIPES)
    for words in given + [shlex.split(line.removeprefix("# ")) for line in heads]:
        assert words[1] in COMMANDS
        if words[1] == "grpo":
            assert_trains(words[2:])
        elif words[1] == "check":
            parse_recipe(WordsParser(ARGUMENTS, prog="trl-mentor check"), words[2:4])
        else:
            parsers[words[1]].parse_args(words[2:])
    assert {words[1] for words in given} == {"check", "eval", "grpo", "plan"}


def test_two_nodes_keep_the_batch_and_have_a_mentor_each(monkeypatch):
    monkeypatch.chdir(ROOT)
    (words,) = commands("accelerate")
    launched = launch_arguments(words[2 : words.index("-m")])
    given = dict(zip(words[words.index("-m") + 2 :: 2], words[words.index("-m") + 3 :: 2], strict=True))
    assert words[words.index("-m") + 1] == TRAINING_MODULE
    recipe = read(ROOT / given["--config"])
    rows = recipe["per_device_train_batch_size"] * recipe["gradient_accumulation_steps"] * 6
    there = (
        launched.num_processes * recipe["per_device_train_batch_size"] * int(given["--gradient_accumulation_steps"])
    )
    assert there == rows
    assert len(given["--mentor_base_url"].split(",")) == launched.num_machines == 2
    parse(on_a_cpu(FOLDER / "qwen3_4b_math.yaml", mentor_base_url=given["--mentor_base_url"]))


def test_the_predictions_of_the_page_are_those_of_its_command(capsys):
    (words,) = (words for words in commands("trl-mentor") if words[1] == "plan")
    for row, more in (("without thinking", []), ("with thinking", ["--completion-tokens-per-call", "1500"])):
        plan.main([*words[2:], "--json", *more])
        found = json.loads(capsys.readouterr().out)["prediction"]
        (shown,) = re.findall(rf"^\| {row}\b.*?\| (\d+) s \| (\d+) s \| (\d+) s \|$", README, re.MULTILINE)
        assert [float(value) for value in shown] == [
            round(found[name]) for name in ("mentor_wait", "step", "plain_step")
        ]


def test_every_file_that_the_page_names_exists():
    named = set(re.findall(r"\b(?:accelerate_configs|recipes)/[\w./]+\w", README))
    assert {name for name in named if not (ROOT / name).is_file()} == set()
