from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest

from trl_mentor.backends.vllm import VLLMBackend
from trl_mentor.config import MentorGRPOConfig
from trl_mentor.errors import ConfigError
from trl_mentor.grpo_trainer import MentorGRPOTrainer
from trl_mentor.guards import (
    check_arguments,
    context_length,
    refuse_local_mentor_under_zero3,
    warn_if_ahead_shares_a_device,
    warn_of_unread,
)
from trl_mentor.settings import MentorArguments
from trl_mentor.strategy_settings import READERS


@pytest.mark.parametrize("backend", ["transformers", "vllm"])
def test_a_local_mentor_is_refused_where_loading_it_on_one_rank_would_hang(backend):
    local = MentorArguments(mentor_backend=backend, mentor_model="m")
    with pytest.raises(ConfigError, match="mentor_backend='openai'"):
        refuse_local_mentor_under_zero3(local, zero3=True)
    refuse_local_mentor_under_zero3(local, zero3=False)
    refuse_local_mentor_under_zero3(MentorArguments(mentor_model="m"), zero3=True)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"use_vllm": True, "vllm_mode": "colocate"}, "serve the mentor"),
        ({"use_vllm": True, "vllm_mode": "server"}, None),
        ({"use_vllm": False}, None),
        ({"use_vllm": True, "vllm_mode": "colocate", "mentor_strategy": "none"}, None),
        ({"use_vllm": True, "vllm_mode": "colocate", "mentor_backend": "openai"}, None),
    ],
)
def test_two_vllm_engines_in_one_process_are_refused_before_a_model_is_loaded(options, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("trl_mentor.guards.require_vllm", lambda: None)
    args = MentorGRPOConfig(
        str(tmp_path), **{"mentor_backend": "vllm", "mentor_model": "m", "use_cpu": True, "bf16": False, **options}
    )
    if refused is None:
        check_arguments({"args": args}, args, mentor=None, strategy=None, zero3=False)
    else:
        with pytest.raises(ConfigError, match=refused):
            check_arguments({"args": args}, args, mentor=None, strategy=None, zero3=False)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_a_vllm_mentor_without_vllm_is_refused_with_its_install(tmp_path):
    args = MentorGRPOConfig(str(tmp_path), mentor_backend="vllm", mentor_model="m", use_cpu=True, bf16=False)
    with pytest.raises(ConfigError, match="pip install vllm"):
        MentorGRPOTrainer("no-such-policy", args=args, reward_funcs=[])
    with pytest.raises(ConfigError, match="pip install vllm"):
        VLLMBackend("no-such-mentor")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"temperature": 3.0}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"thinking": {"x": True}}, "thinking"),
    ],
)
def test_a_wrong_setting_of_a_vllm_mentor_is_refused_before_the_engine_starts(wrong, named):
    with pytest.raises(ConfigError, match=named):
        VLLMBackend("no-such-mentor", **wrong)


def test_a_local_mentor_that_writes_beside_training_is_warned_about(caplog):
    warn_if_ahead_shares_a_device(MentorArguments(mentor_schedule="ahead", mentor_model="m"))
    warn_if_ahead_shares_a_device(MentorArguments(mentor_backend="transformers", mentor_model="m"))
    assert caplog.text == ""
    warn_if_ahead_shares_a_device(
        MentorArguments(mentor_schedule="ahead", mentor_backend="transformers", mentor_model="m")
    )
    assert "all ranks wait for the slowest" in caplog.text


def test_the_context_is_known_from_the_positions_unless_they_are_stretched():
    assert context_length(SimpleNamespace(max_position_embeddings=64)) == 64
    assert context_length(SimpleNamespace()) is None
    assert context_length(SimpleNamespace(max_position_embeddings=64, rope_scaling={"factor": 4.0})) is None
    assert context_length(SimpleNamespace(max_position_embeddings=64, rope_parameters={"rope_type": "default"})) == 64


CHOSEN = {
    "mentor_hint_column": "advice",
    "mentor_demonstration_column": "worked",
    "mentor_prefix_shares": [0.9],
    "mentor_affinity": 0.0,
    "mentor_dapo_refill": False,
    "mentor_critique": "simple",
    "mentor_critique_template": "{question}\n{critique}",
    "mentor_shaping_gamma": 0.5,
    "mentor_routes": {"cut_off": "mentor"},
    "mentor_hint_template": "{hint}\n{question}",
    "mentor_control_fraction": 0.3,
    "mentor_hint_reliance": True,
    "mentor_strip_echo": True,
    "mentor_start_step": 3,
    "mentor_decay": "linear",
}
READ = {
    "mentor": {
        "mentor_shaping_gamma", "mentor_routes", "mentor_hint_template", "mentor_control_fraction",
        "mentor_hint_reliance", "mentor_strip_echo", "mentor_start_step", "mentor_decay",
    },
    "dapo": {"mentor_dapo_refill", "mentor_start_step", "mentor_decay"},
    "static_hint": {
        "mentor_hint_column", "mentor_affinity", "mentor_hint_template", "mentor_control_fraction",
        "mentor_hint_reliance", "mentor_strip_echo", "mentor_start_step", "mentor_decay",
    },
    "prefix": {"mentor_demonstration_column", "mentor_prefix_shares"},
    "scaffold": {
        "mentor_hint_column", "mentor_hint_template", "mentor_control_fraction", "mentor_hint_reliance",
        "mentor_start_step", "mentor_decay",
    },
    "luffy": {"mentor_demonstration_column", "mentor_shaping_gamma", "mentor_start_step", "mentor_decay"},
    "critique": {
        "mentor_critique", "mentor_critique_template", "mentor_shaping_gamma", "mentor_control_fraction",
        "mentor_hint_reliance", "mentor_strip_echo", "mentor_start_step", "mentor_decay",
    },
    "srpo": set(),
    "none": set(CHOSEN),
    "resample": set(CHOSEN),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("method", READ)
def test_a_setting_that_the_strategy_does_not_read_is_said(method, name, caplog):
    kind = {"mentor_strategy": "static_hint", "mentor_static_hint": "prefix"} if method == "prefix" else {}
    warn_of_unread(MentorArguments(**{"mentor_strategy": method, **kind, name: CHOSEN[name]}))
    said = [record.message for record in caplog.records]
    assert len(said) == (name not in READ[method])
    assert all(f"{name}: not read by mentor_strategy=" in text for text in said)


def test_every_setting_that_single_strategies_read_is_tried():
    # a second control is refused where it is not read, and the kind of static hint makes two methods of one
    assert set(READERS) == {*CHOSEN, "mentor_generic_fraction", "mentor_static_hint"}


def test_a_fixed_hint_in_place_of_none_is_said_to_be_unread(caplog):
    warn_of_unread(MentorArguments(mentor_strategy="luffy", mentor_generic_fraction=0.3))
    assert "mentor_generic_fraction: not read by mentor_strategy='luffy'" in caplog.text


def test_the_question_of_which_static_hint_is_unread_elsewhere(caplog):
    warn_of_unread(MentorArguments(mentor_strategy="dapo", mentor_static_hint="prefix"))
    assert "mentor_static_hint: not read by mentor_strategy='dapo'" in caplog.text


def test_nothing_is_said_of_settings_that_were_left_alone(caplog):
    for strategy in ("dapo", "static_hint", "scaffold", "luffy", "critique", "srpo", "mentor"):
        warn_of_unread(MentorArguments(mentor_strategy=strategy))
    assert not caplog.records
