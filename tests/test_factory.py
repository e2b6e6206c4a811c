from __future__ import annotations

import pytest

from trl_mentor.backends.openai import OpenAIBackend
from trl_mentor.errors import BackendError, ConfigError, TemplateError
from trl_mentor.factory import build_backend, build_mentor, build_strategy
from trl_mentor.records import Role
from trl_mentor.settings import MentorArguments


def settings(**values):
    return MentorArguments(mentor_model="m", mentor_base_url="http://localhost:1/v1", **values)


def test_an_endpoint_is_asked_with_the_settings_of_the_recipe():
    backend = build_backend(settings(mentor_temperature=0.2, mentor_max_tokens=77))
    assert isinstance(backend, OpenAIBackend)
    assert "'m'" in repr(backend)
    assert "temperature=0.2, max_tokens=77" in repr(backend)


def test_a_local_mentor_is_loaded_on_the_main_process_only(tmp_path):
    local = MentorArguments(mentor_backend="transformers", mentor_model=str(tmp_path / "no-model-here"))
    elsewhere = build_backend(local, is_main=False)
    with pytest.raises(BackendError, match="main process only"):
        elsewhere.chat([], role=Role.GENERATION, timeout=1.0)
    with pytest.raises((OSError, ValueError)):
        build_backend(local, is_main=True)


def test_the_mentor_has_the_loop_and_limits_of_the_settings():
    mentor = build_mentor(settings(mentor_deadline=12.0, mentor_max_retry=3, mentor_ablation="no_judge"))
    assert (mentor.deadline, mentor.plan.max_retry, mentor.plan.ablation) == (12.0, 3, "no_judge")


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"mentor_domain": "poetry"}, TemplateError),
        ({"mentor_ablation": "no_idea"}, ConfigError),
        ({"mentor_attempt_budget": 10}, ConfigError),
        ({"mentor_api_key_env": "NO_SUCH_VARIABLE_HERE"}, ConfigError),
    ],
)
def test_settings_that_only_the_mentor_can_check_are_refused_when_it_is_made(values, error):
    with pytest.raises(error):
        build_mentor(settings(**values))


def test_strategies_without_a_mentor_need_no_model():
    for name in ("resample", "none"):
        assert build_strategy(MentorArguments(mentor_strategy=name), None, is_main=True).name == name
