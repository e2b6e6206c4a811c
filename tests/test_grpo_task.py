"""`trl-mentor grpo` and `check` with a task as the data: what a recipe may say, and trainings for real."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from task_files import call_case, call_row, deepmath_row, packed, write_deepmath, write_livecodebench
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trl_mentor.cli import grpo
from trl_mentor.cli.grpo import load_reward, load_splits, parse, pick_split
from trl_mentor.cli.main import main
from trl_mentor.errors import ConfigError

OWN_REWARDS = ["boxed_format_reward", "choice_reward", "code_fraction_reward", "code_reward", "math_reward"]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_MENTOR_CACHE", str(tmp_path / "store"))


@pytest.fixture(scope="module")
def deepmath(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = (deepmath_row(i, final_answer="42") for i in range(40))
    return write_deepmath(tmp_path_factory.mktemp("deepmath"), rows)


def save_policy(folder: Path, completions: list[str]) -> Path:
    """A model whose one token is a whole completion; to it all words of a prompt are alike."""
    words = ["<pad>", "<eos>", "<unk>", *completions]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    tokenizer.chat_template = tiny.CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    model = tiny.model().config.to_dict() | {"vocab_size": len(words), "max_position_embeddings": 512}
    LlamaForCausalLM(LlamaConfig.from_dict(model)).save_pretrained(folder)
    return folder


def write_recipe(folder: Path, **changes: Any) -> Path:
    recipe = {
        "model_name_or_path": str(folder / "model"),
        "output_dir": str(folder / "run"),
        "max_steps": 2,
        "logging_steps": 1,
        "save_steps": 2,
        "save_only_model": True,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 1,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "mentor_strategy": "none",
        **changes,
    }
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump({name: value for name, value in recipe.items() if value is not None}))
    return file


def splits(folder: Path, **changes: Any) -> Any:
    script, _, _, data = parse(["--config", str(write_recipe(folder, **changes))])
    return load_splits(script, data)


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[dict[str, Any]]:
    """What a training by `trl-mentor grpo`'s script logged, step by step."""
    monkeypatch.setattr(sys, "argv", ["grpo", "--config", str(write_recipe(folder, **changes))])
    assert grpo.main() == 0
    state = json.loads((folder / "run" / "checkpoint-2" / "trainer_state.json").read_text())
    history: list[dict[str, Any]] = state["log_history"]
    return history


# Trainings


def test_mathematics_trains_on_right_and_wrong_answers_and_validates(tmp_path, monkeypatch, deepmath, capsys):
    save_policy(tmp_path / "model", ["So it is \\boxed{42}.", "So it is \\boxed{41}.", "The answer is $42$."])
    logs = trained(
        tmp_path,
        monkeypatch,
        task="deepmath-103k",
        task_files=str(deepmath),
        task_max_difficulty=8,
        reward_funcs=["math_reward", "boxed_format_reward"],
        mentor_success_rewards=["math_reward"],
        eval_strategy="steps",
        eval_steps=2,
        dataset_test_split="validation",
        per_device_eval_batch_size=8,
        num_generations_eval=4,
    )
    means = [entry["rewards/math_reward/mean"] for entry in logs if "loss" in entry]
    assert len(means) == 2
    assert 0 < sum(means) / 2 < 1
    assert any(entry["grad_norm"] > 0 for entry in logs if "loss" in entry)
    assert any(0 < entry["rewards/boxed_format_reward/mean"] < 1 for entry in logs if "loss" in entry)
    assert any("eval_rewards/math_reward/mean" in entry for entry in logs)
    assert "Training on deepmath-103k train: " in (said := capsys.readouterr().out)
    assert "problems of local files, sha256 " in said


def test_programs_train_on_what_passes_their_tests(tmp_path, monkeypatch):
    right = "```python\nclass Solution:\n    def pairs(self, values, word):\n        return len(values)\n```"
    save_policy(tmp_path / "model", [right, "```python\nprint(1)\n```", "I do not know."])
    cases = [call_case([list(range(size)), "x" * 9000], size) for size in range(3)]
    rows = [call_row(i, public_test_cases=json.dumps(cases[:1]), private_test_cases=packed(cases)) for i in range(8)]
    folder = write_livecodebench(tmp_path / "data", rows)
    logs = trained(tmp_path, monkeypatch, task="livecodebench", task_files=str(folder), reward_funcs=["code_reward"])
    means = [entry["rewards/code_reward/mean"] for entry in logs if "loss" in entry]
    assert len(means) == 2
    assert 0 < sum(means) / 2 < 1
    assert list((tmp_path / "store").rglob("*.gz"))  # the tests did not travel with the rows


# Recipes


def test_a_recipes_bounds_reach_the_task(tmp_path, deepmath):
    bounds = {"task_min_difficulty": 2.0, "task_max_difficulty": 3, "task_max_prompt_chars": 400}
    found = splits(tmp_path, task="deepmath-103k", task_files=str(deepmath), **bounds)
    assert sorted(found) == ["full", "train", "validation"]
    assert set(pick_split(found, "full")["difficulty"]) == {2.0, 3.0}
    with pytest.raises(ConfigError, match=r"no split 'test'; it has \['full', 'train', 'validation'\]"):
        pick_split(found, "test")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, "no data: set task, dataset_name, or datasets"),
        ({"task": "deepmath-103k", "dataset_name": "x"}, "got both task and dataset_name"),
        ({"task": "deepmath-103k", "datasets": [{"path": "x"}]}, "got both task and datasets"),
        ({"dataset_name": "x", "datasets": [{"path": "x"}]}, "got both dataset_name and datasets"),
        ({"dataset_name": "x", "task_files": "y"}, "task_files without task"),
        ({"task": "deep-math"}, "unknown task 'deep-math'"),
    ],
)
def test_data_that_is_named_twice_or_not_at_all_is_a_wrong_setting(tmp_path, changes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        splits(tmp_path, **changes)


@pytest.mark.parametrize("name", OWN_REWARDS)
def test_the_packages_rewards_are_known_by_name(name):
    assert load_reward(name).__name__ == name
    assert load_reward(name).__module__.startswith("trl_mentor.rewards.")


def test_the_help_lists_the_arguments_of_a_task_and_the_rewards(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["grpo", "--help"])
    printed = capsys.readouterr().out
    assert exit_.value.code == 0
    for words in ("--task ", "--task_files", "--task_max_prompt_chars", *OWN_REWARDS):
        assert words in printed


# Checks


def checked(folder: Path, capsys: pytest.CaptureFixture[str], **changes: Any) -> dict[str, Any]:
    main(["check", "--config", str(write_recipe(folder, **changes)), "--json"])
    return {item["name"]: item for item in json.loads(capsys.readouterr().out)["findings"]}


def test_check_reads_a_task_and_tries_its_reward(tmp_path, deepmath, capsys):
    at = checked(tmp_path, capsys, task="deepmath-103k", task_files=str(deepmath), reward_funcs=["math_reward"])
    assert {at[name]["level"] for name in ("recipe", "data", "columns", "rewards load", "reward")} == {"ok"}, at
    assert at["data"]["found"].startswith("8 rows read of the split 'train'")


def test_check_tries_the_reward_of_programs_and_misses_no_answers(tmp_path, capsys):
    folder = write_livecodebench(tmp_path / "data", [call_row(i) for i in range(12)])
    at = checked(tmp_path, capsys, task="livecodebench", task_files=str(folder), reward_funcs=["code_reward"])
    assert {at[name]["level"] for name in ("data", "columns", "rewards load")} == {"ok"}, at
    assert "passes the tests" in at["columns"]["found"]
    assert "'I do not know.' fails, as it should" in at["reward"]["found"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"task": "deep-math"}, "unknown task 'deep-math'"),
        ({"task": "deepmath-103k", "dataset_train_split": "dev"}, "no split 'dev'"),
        ({"task": "deepmath-103k", "task_files": "nowhere"}, "there is no nowhere"),
        ({"task": "deepmath-103k", "task_min_difficulty": 99}, "leaves none"),
    ],
)
def test_check_says_what_is_wrong_with_a_task(tmp_path, deepmath, capsys, changes, found):
    at = checked(tmp_path, capsys, reward_funcs=["math_reward"], **{"task_files": str(deepmath), **changes})
    assert at["data"]["level"] == "fail"
    assert found in at["data"]["found"]
    assert "task" in at["data"]["fix"]


def test_check_guesses_the_argument_that_was_meant(tmp_path, capsys):
    at = checked(tmp_path, capsys, task="deepmath-103k", task_file="x")
    assert "did you mean task_files?" in at["recipe"]["fix"]
