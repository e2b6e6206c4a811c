"""`trl-mentor check` on reward functions, leak rules and recipes that would end, hang or garble the command itself."""

# ruff: noqa: F811  (tests take the fixtures of test_check.py by name)

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from test_check import endpoint, world  # noqa: F401

from trl_mentor.backends.endpoint import check_base_url, checked_body
from trl_mentor.cli import check
from trl_mentor.cli.main import main
from trl_mentor.errors import ConfigError
from trl_mentor.factory import build_backend
from trl_mentor.settings import MentorArguments

# User's code that recipes of these tests name by path


def exits(completions: list[Any], **kwargs: Any) -> list[float]:
    sys.exit(0)


def dies(completions: list[Any], **kwargs: Any) -> list[float]:
    os._exit(0)


def interrupts(completions: list[Any], **kwargs: Any) -> list[float]:
    raise KeyboardInterrupt


def hangs(completions: list[Any], **kwargs: Any) -> list[float]:
    while True:
        time.sleep(60)


def dies_and_leaves_a_child(completions: list[Any], **kwargs: Any) -> list[float]:
    if os.fork() == 0:  # it holds every pipe open
        time.sleep(600)
    os._exit(3)


def garbles(completions: list[Any], answer: list[str], **kwargs: Any) -> list[float]:
    os.write(1, b"to the descriptor{")
    subprocess.run(["echo", "from a subprocess{"], check=True)
    sys.stdout.close()
    return [float(text[0]["content"] == right) for text, right in zip(completions, answer, strict=True)]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises_what_cannot_be_told(completions: list[Any], **kwargs: Any) -> list[float]:
    raise UnspeakableError


class Prickly:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no attribute {name}")

    def __call__(self, completions: list[Any], **kwargs: Any) -> list[float]:
        return [0.0] * len(completions)


prickly = Prickly()


def rule_that_exits(hint: str, group: Any) -> str | None:
    sys.exit(0)


def rule_that_hangs(hint: str, group: Any) -> str | None:
    while True:
        time.sleep(60)


# What becomes of it


@pytest.mark.parametrize(
    ("reward", "found"),
    [
        ("exits", "exits ended its process with SystemExit: 0"),
        ("dies", "dies ended its process (exit status 0)"),
        ("interrupts", "interrupts ended its process with KeyboardInterrupt"),
        ("hangs", "hangs has not returned after 0.3 s"),
        ("raises_what_cannot_be_told", "raised UnspeakableError: no readable message"),
    ],
)
def test_a_reward_that_ends_the_process_or_hangs_is_a_failure_and_the_check_goes_on(
    world,
    capsys,
    reward,
    found,
):
    seconds = "0.3" if reward == "hangs" else "60"
    words = ("--reward-timeout", seconds)
    done = world.check(capsys, *words, reward_funcs=[f"test_check_hostile.{reward}"], mentor_success_rewards=None)
    assert done.code == 1
    assert done.at["reward"]["level"] == "fail"
    assert found in done.at["reward"]["found"]
    assert done.at["reward"]["fix"]
    assert done.at["replies"]["level"] == "ok"


def test_a_reward_that_dies_is_told_from_one_that_hangs_even_if_what_it_started_lives(world, capsys):
    path = "test_check_hostile.dies_and_leaves_a_child"
    done = world.check(capsys, reward_funcs=[path], mentor_success_rewards=None)
    assert "ended its process (exit status 3)" in done.at["reward"]["found"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import sys; sys.exit(0)", "ended its process with SystemExit: 0"),
        ("import os; os._exit(7)", "ended its process (exit status 7)"),
        ("raise BaseException('no')", "ended its process with BaseException: no"),
        ("import time\nwhile True: time.sleep(60)", "has not returned after 0.3 s"),
    ],
)
def test_a_module_that_ends_the_process_at_import_is_a_failure(
    world,
    capsys,
    tmp_path,
    monkeypatch,
    text,
    found,
):
    (tmp_path / "ends_at_import.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    words = ("--reward-timeout", "0.3" if "while" in text else "60")
    done = world.check(capsys, *words, reward_funcs=["ends_at_import.f"], mentor_success_rewards=None)
    assert done.code == 1
    assert f"importing 'ends_at_import.f' {found}" in done.at["rewards load"]["found"]


def test_a_reward_whose_name_cannot_be_read_is_a_failure_as_it_would_be_in_trl(world, capsys):
    done = world.check(capsys, reward_funcs=["test_check_hostile.prickly"], mentor_success_rewards=None)
    assert "RuntimeError: no attribute __name__" in done.at["rewards load"]["found"]


@pytest.mark.parametrize(
    ("rule", "found"), [("rule_that_exits", "SystemExit"), ("rule_that_hangs", "has not returned")]
)
def test_a_leak_rule_that_exits_or_hangs_is_a_failure(world, capsys, rule, found):
    done = world.check(capsys, "--reward-timeout", "1", mentor_leak_rule=f"test_check_hostile.{rule}")
    assert done.at["leak rule"]["level"] == "fail"
    assert found in done.at["leak rule"]["found"]


def test_whatever_a_reward_writes_the_output_is_one_json_object(world, capfd):
    done = world.check(capfd, reward_funcs=["test_check_hostile.garbles"], mentor_success_rewards=None)
    assert done.at["reward"]["level"] == "ok", done.at["reward"]


def test_what_a_library_writes_to_descriptor_1_goes_to_standard_error(world, capfd, monkeypatch):
    def reads_loudly(setup: Any) -> Any:
        os.write(1, b"said by a library{")
        return read_rows(setup)

    read_rows = check.read_rows
    monkeypatch.setattr(check, "read_rows", reads_loudly)
    assert main(["check", "--config", str(world.recipe()), "--json"]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["ok"]
    assert "said by a library{" in captured.err


def test_a_fault_of_the_check_itself_is_a_finding_after_those_that_were_made(world, capsys, monkeypatch):
    def breaks(setup: Any) -> Any:
        raise ZeroDivisionError("by a fault")

    monkeypatch.setattr(check, "check_context", breaks)
    done = world.check(capsys)
    assert done.code == 1
    assert done.at["check"]["found"] == "check itself failed: ZeroDivisionError: by a fault"
    assert done.at["reward"]["level"] == "ok"


# Recipes


def alias_bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for one, next_one in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{next_one}: &{next_one} [{', '.join([f'*{one}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1: 2", "the key 1 of the recipe"),
        ("[" * 5000, "nests more than"),
        (alias_bomb(), "aliases"),
        ("a: " + "x" * 2**20, "larger than 1,048,576 bytes"),
    ],
    ids=["a key that is a number", "deep nesting", "an alias bomb", "a large file"],
)
def test_a_recipe_that_no_parser_survives_fails_alone(tmp_path, capsys, text, found):
    file = tmp_path / "recipe.yaml"
    file.write_text(text, encoding="utf-8")
    assert main(["check", "--config", str(file), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["name"], finding["level"]) == ("recipe", "fail")
    assert found in finding["found"]


def test_an_alias_that_stands_for_little_is_allowed(world, capsys):
    file = world.recipe()
    text = file.read_text(encoding="utf-8").replace("seed: ", "seed: &seed ")
    file.write_text(f"{text}\ndata_seed: *seed\n", encoding="utf-8")
    assert main(["check", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]


@pytest.mark.parametrize(
    ("changes", "name", "found"),
    [
        ({"num_generations": 0}, "batches", "num_generations is 0; it must be 1 or more"),
        ({"per_device_train_batch_size": -4}, "batches", "per_device_train_batch_size is -4; it must be 1 or more"),
        ({"mentor_base_url": "http://[::1"}, "endpoint", "base_url is no URL"),
        ({"mentor_extra_body": '{"top_k": NaN}'}, "model", "extra_body must be plain JSON"),
    ],
)
def test_a_value_that_broke_the_check_is_a_failure_with_a_fix(world, capsys, changes, name, found):
    done = world.check(capsys, **changes)
    assert done.code == 1
    assert "check" not in done.at
    assert done.at[name]["level"] == "fail"
    assert found in done.at[name]["found"]
    assert done.at[name]["fix"]


@pytest.mark.parametrize("url", ["http://[::1", "http://user:secret/v1", "http://host:99999/v1"])
def test_a_url_that_cannot_be_read_is_a_config_error_that_does_not_show_it(url):
    with pytest.raises(ConfigError, match="base_url is no URL") as caught:
        check_base_url(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError):
        build_backend(MentorArguments(mentor_base_url=url, mentor_model="m"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_extra_body_with_what_json_lacks_is_refused(value):
    with pytest.raises(ConfigError, match="plain JSON"):
        checked_body({"top_k": value})
