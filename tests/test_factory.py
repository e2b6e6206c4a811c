from __future__ import annotations

import json
import socket

import pytest

from trl_mentor.backends.openai import OpenAIBackend
from trl_mentor.errors import BackendError, ConfigError, TemplateError
from trl_mentor.factory import build_backend, build_backends, build_mentor, build_strategy
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin, Role
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


def test_several_endpoints_are_several_backends_of_one_mentor():
    backends = build_backends(
        MentorArguments(mentor_model="m", mentor_base_url="http://a:1/v1, https://b/v1/", mentor_temperature=0.1)
    )
    assert [backend.endpoint for backend in backends] == ["http://a:1/v1", "https://b/v1"]
    assert all("temperature=0.1" in repr(backend) for backend in backends)


@pytest.mark.parametrize(
    ("urls", "complaint"),
    [
        ("http://a/v1,http://a/v1/", "twice"),
        ("http://a/v1,", "expected a URL"),
        ("http://a/v1,b:8000/v1", "expected a URL"),
        ("http://a/v1,http://me:planted@b/v1", "api_key_env"),
    ],
)
def test_each_of_several_endpoints_is_checked(urls, complaint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        build_backends(MentorArguments(mentor_model="m", mentor_base_url=urls))
    assert "planted" not in str(caught.value)


def test_thinking_is_switched_by_role():
    backend = build_backend(settings(mentor_thinking='{"judgment": true, "generation": false}'))
    assert json.loads(backend.identity)["thinking"] == {"judgment": True, "generation": False}


@pytest.mark.parametrize("thinking", ['{"judge": true}', '{"judgment": "yes"}', {"judgment": 1}])
def test_thinking_of_an_unknown_role_or_kind_is_refused_with_the_roles(thinking):
    with pytest.raises(ConfigError, match=r"judg.*attribution.*generation.*judgment.*repair"):
        build_mentor(settings(mentor_thinking=thinking))


def test_the_pause_of_the_settings_holds(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as reserved:  # bound and not listening: refuses connections
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"
        mentor = build_mentor(
            MentorArguments(
                mentor_model="m", mentor_base_url=url, mentor_pause_after=1, mentor_pause_seconds=77.0,
                mentor_max_concurrency=1, mentor_max_retry=1,
            )
        )  # fmt: skip
        origins = [guidance.origin for guidance in mentor.guide([CollapsedGroup("q", (Attempt("a"),))] * 3)]
    assert origins == [HintOrigin.FAILED, HintOrigin.NOT_ASKED, HintOrigin.NOT_ASKED]
    (event,) = mentor.take_events()
    assert "left alone for 77 s" in event.text
