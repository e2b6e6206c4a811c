from __future__ import annotations

import ast
import importlib.metadata
import inspect
import os
import runpy
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pandas as pd
import pytest
import tiny
import trl
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from trl import GRPOTrainer

import trl_mentor
from trl_mentor.contract import (
    ATTRIBUTES,
    CARD,
    PARAMETERS,
    SUPPORTED_TRL,
    Generated,
    check_contract,
    refuse_unsloth,
    stored_attributes,
    supported_trl,
)
from trl_mentor.errors import ContractError

ROOT = Path(__file__).parent.parent
TRAINER = Path(trl_mentor.__file__).parent / "grpo_trainer.py"


def pinned() -> str:
    """The TRL that `make test` installs."""
    lines = (ROOT / "constraints-cpu.txt").read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("trl==") for line in lines if line.startswith("trl=="))


def stated_range() -> SpecifierSet:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    (line,) = [line for line in setup["options"]["install_requires"].splitlines() if line.startswith("trl>")]
    return Requirement(line).specifier


def definition(function) -> ast.FunctionDef:
    tree = ast.parse("if True:\n" + inspect.getsource(function))
    return next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_the_trl_under_test_is_the_one_this_run_is_about():
    expected = os.environ.get("EXPECTED_TRL", pinned())
    assert trl.__version__ == importlib.metadata.version("trl") == expected
    child = [sys.executable, "-c", "import trl; print(trl.__version__)"]
    assert subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip() == expected


def test_the_installed_trl_has_the_interface_that_the_seam_was_written_against():
    check_contract(GRPOTrainer)


def test_the_range_is_the_one_that_setup_cfg_states():
    assert stated_range() == SUPPORTED_TRL
    assert pinned() in SUPPORTED_TRL


def test_a_source_tree_that_is_not_installed_has_the_same_range(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert supported_trl() == stated_range()


@pytest.mark.parametrize("version", ["1.14.1", "1.15.0", "99.0", "0.24.0", "unknown"])
def test_a_version_outside_the_tested_range_is_refused_with_the_range(version):
    with pytest.raises(ContractError, match=r"pip install 'trl.*>=1\.14\.2") as caught:
        check_contract(GRPOTrainer, version=version)
    assert version in str(caught.value)


class OtherShape(GRPOTrainer):
    def _generate(self, prompts):
        prompt_ids = completion_ids = prompts
        return prompt_ids, completion_ids


class OtherParameters(GRPOTrainer):
    def _calculate_rewards(self, inputs, prompts, completions):
        return None


class OtherRoute(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        return self.rollouts.generate(inputs)


class OtherLoss(GRPOTrainer):
    def compute_loss(self, model, inputs):
        return self._loss(model, inputs)

    def _compute_loss(self, model, inputs):
        advantages = inputs["advantages"]
        logps = self._get_per_token_logps_and_entropies(model)
        return advantages * (logps - inputs.get("old_per_token_logps"))


class OtherState(GRPOTrainer):
    def __init__(self, *args):
        self.metrics = self._step = None


class OtherCard(GRPOTrainer):
    def create_model_card(self, model_name, dataset_name, tags):
        return self._name


class NoMethod(GRPOTrainer):
    _tokenize_prompts = None


class NoSource(GRPOTrainer):
    _generate = eval("lambda self, prompts: prompts")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            OtherShape,
            r"_generate returns \('prompt_ids', 'completion_ids'\), expected .*'tool_images'\)",
        ),
        (OtherParameters, r"_calculate_rewards takes \('self', 'inputs', 'prompts', 'completions'\), expected"),
        (OtherRoute, r"_generate_and_score_completions does not call self\._generate\(prompts\) once"),
        (
            OtherLoss,
            r"_compute_loss does not read inputs\['advantages'\] after scoring alone; compute_loss does not call",
        ),
        (OtherState, r"__init__ does not set self\._metrics; __init__ does not set self\._pending_extra_logs"),
        (OtherCard, "create_model_card does not read self._paper"),
        (NoMethod, "_tokenize_prompts is gone"),
        (NoSource, "its source cannot be read"),
    ],
)
def test_another_private_interface_is_refused_with_what_differs_and_what_was_tested(changed, message):
    with pytest.raises(ContractError, match=message) as caught:
        check_contract(changed)
    assert f"trl{SUPPORTED_TRL}" in str(caught.value)
    assert trl.__version__ in str(caught.value)


def replaced(self, prompts):
    return prompts


replaced.__module__ = "unsloth.models.rl_replacements"
IN_CACHE = {"__module__": "unsloth_compiled_cache.UnslothGRPOTrainer"}
UNSLOTH_BASE = type("_UnslothGRPOTrainer", (GRPOTrainer,), {"__module__": "compiled"})


@pytest.mark.parametrize(
    "rewritten",
    [
        type("UnslothGRPOTrainer", (GRPOTrainer,), {}),
        type("GRPOTrainer", (GRPOTrainer,), IN_CACHE),
        type("GRPOTrainer", (UNSLOTH_BASE,), {}),
        type("GRPOTrainer", (GRPOTrainer,), {"_generate": replaced}),
    ],
    ids=["by its name", "by its module", "by a base", "by one method"],
)
def test_a_trainer_rewritten_by_unsloth_is_recognised_and_the_message_says_what_to_do(rewritten):
    with pytest.raises(ContractError, match=r"rewritten by Unsloth .* remove every import of unsloth"):
        check_contract(rewritten)


def test_trls_own_trainer_is_not_taken_for_one_of_unsloth():
    refuse_unsloth(GRPOTrainer)


def test_the_import_of_the_trainer_is_refused_where_unsloth_has_replaced_trls(monkeypatch):
    monkeypatch.setattr(trl, "GRPOTrainer", type("UnslothGRPOTrainer", (GRPOTrainer,), IN_CACHE))
    with pytest.raises(ContractError, match="UnslothGRPOTrainer is TRL's trainer as rewritten by Unsloth"):
        runpy.run_path(str(TRAINER))


def test_the_contract_holds_every_name_of_trl_that_the_trainer_uses_and_no_other():
    tree = ast.parse(TRAINER.read_text(encoding="utf-8"))
    methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    used = methods | {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"self", "super()"}
    }
    assert {name for name in used & set(dir(GRPOTrainer)) if name[0] == "_" != name[1]} == {*PARAMETERS, *CARD}
    assert used & (stored_attributes(definition(GRPOTrainer.__init__)) - STANDARD) == set(ATTRIBUTES)


STANDARD = {"model", "args"}
"""What TRL's trainer sets itself, but any trainer of transformers has."""


def test_the_fields_of_a_generation_are_those_trl_returns():
    assert Generated._fields[:2] == ("prompt_ids", "completion_ids")
    assert len(Generated._fields) == 8


class OtherQuestionInRowZero(GRPOTrainer):
    """Puts another prompt into the list that TRL hands to `_generate`, in place, and returns its tokens."""

    def _generate(self, prompts):
        generated = super()._generate(prompts)
        prompts[0] = "w9 w9"
        generated[0][0] = self.processing_class(text=prompts[0])["input_ids"]
        return generated


def test_a_prompt_replaced_in_place_is_what_rewards_and_the_completions_table_are_shown(tmp_path):
    reward = tiny.HardRowsFail(rerolls=False)
    trainer = OtherQuestionInRowZero(
        tiny.model(),
        reward_funcs=reward,
        args=tiny.config(tmp_path, log_completions=True),
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
    )
    trainer.train()
    shown = ["w9 w9", *["w0 w0"] * 3, *["w1 w1"] * 4, *["w2 w2"] * 4, *["w3 w3"] * 4]
    assert reward.calls[0]["prompts"] == shown
    assert pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")["prompt"].tolist() == shown
    assert trainer.train_dataset["prompt"][0] == "w0 w0"
