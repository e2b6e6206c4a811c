from __future__ import annotations

from types import SimpleNamespace

import pytest

from trl_mentor.errors import ConfigError
from trl_mentor.guards import (
    context_length,
    refuse_local_mentor_under_zero3,
    warn_if_ahead_shares_a_device,
)
from trl_mentor.settings import MentorArguments


def test_a_local_mentor_is_refused_where_loading_it_on_one_rank_would_hang():
    local = MentorArguments(mentor_backend="transformers", mentor_model="m")
    with pytest.raises(ConfigError, match="mentor_backend='openai'"):
        refuse_local_mentor_under_zero3(local, zero3=True)
    refuse_local_mentor_under_zero3(local, zero3=False)
    refuse_local_mentor_under_zero3(MentorArguments(mentor_model="m"), zero3=True)


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
