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


@pytest.mark.parametrize(
    ("strategy", "unread"),
    [("dapo", True), ("luffy", True), ("srpo", True), ("mentor", False), ("scaffold", False), ("none", False)],
)
def test_a_setting_that_the_strategy_does_not_read_is_said(strategy, unread, caplog):
    warn_of_unread(MentorArguments(mentor_strategy=strategy, mentor_control_fraction=0.3))
    said = "mentor_control_fraction: not read by mentor_strategy='" + strategy
    assert [said in record.message for record in caplog.records] == [True] * unread


def test_nothing_is_said_of_settings_that_were_left_alone(caplog):
    for strategy in ("dapo", "static_hint", "scaffold", "luffy", "critique", "srpo", "mentor"):
        warn_of_unread(MentorArguments(mentor_strategy=strategy))
    assert not caplog.records
