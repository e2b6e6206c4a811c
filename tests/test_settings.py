from __future__ import annotations

import pytest

from trl_mentor.errors import ConfigError
from trl_mentor.settings import MentorArguments


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mentor_strategy", "mentr"),
        ("mentor_backend", "anthropic"),
        ("mentor_ablation", "no_jugde"),
        ("mentor_max_retry", 0),
        ("mentor_max_refine", -1),
        ("mentor_deadline", 0),
        ("mentor_call_timeout", float("nan")),
        ("mentor_temperature", -0.1),
        ("mentor_max_concurrency", 0),
        ("mentor_attempt_budget", 0),
        ("mentor_max_retry", [1]),
        ("mentor_extra_body", "not json"),
        ("mentor_max_retry", 2.0),
        ("mentor_success_threshold", "0.5"),
        ("mentor_success_threshold", float("inf")),
        ("mentor_success_rewards", "verifier"),
        ("mentor_hint_template", None),
        ("mentor_hint_template", "Hint: {hint}"),
        ("mentor_extra_body", "[1]"),
        ("mentor_call_timeout", True),
        ("mentor_deadline", 10**400),
        ("mentor_temperature", "hot"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name_and_value(name, value):
    with pytest.raises(ConfigError, match=name) as caught:
        MentorArguments(**{name: value})
    assert repr(value) in str(caught.value)


def test_the_defaults_are_the_papers():
    settings = MentorArguments()
    assert (settings.mentor_max_retry, settings.mentor_max_refine, settings.mentor_success_threshold) == (2, 2, 0.0)


def test_an_object_for_every_request_may_be_given_as_text():
    settings = MentorArguments(mentor_extra_body='{"chat_template_kwargs": {"enable_thinking": false}}')
    assert settings.mentor_extra_body == {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize("strategy", ["dapo", "static_hint", "scaffold", "luffy", "critique", "srpo"])
@pytest.mark.parametrize(
    "chosen",
    [
        {"mentor_preset": "robust"},
        {"mentor_rescue": "single"},
        {"mentor_score_on": "original"},
        {"mentor_score_on": "original", "mentor_rescue_shaping": "luffy"},
    ],
    ids=str,
)
def test_a_construction_is_refused_where_the_strategy_has_rows_of_its_own(strategy, chosen):
    with pytest.raises(ConfigError, match=f"{next(iter(chosen))} says .*'{strategy}' has rows of its own; leave"):
        MentorArguments(mentor_strategy=strategy, **chosen)
    for alike in ("mentor", "resample", "none"):
        assert MentorArguments(mentor_strategy=alike, **chosen).mentor_strategy == alike


@pytest.mark.parametrize("strategy", ["static_hint", "scaffold", "critique"])
def test_a_fixed_hint_is_refused_where_the_strategy_has_hints_of_its_own(strategy):
    with pytest.raises(ConfigError, match=f"mentor_generic_fraction is 0.2, but strategy '{strategy}' has no fixed"):
        MentorArguments(mentor_strategy=strategy, mentor_generic_fraction=0.2)


@pytest.mark.parametrize("options", [{"mentor_strategy": "none"}, {"mentor_strategy": "luffy"}], ids=str)
def test_fractions_of_hints_mean_nothing_where_there_are_none(options):
    assert MentorArguments(**options, mentor_generic_fraction=0.2, mentor_control_fraction=0.2)
    prefix = {"mentor_strategy": "static_hint", "mentor_static_hint": "prefix"}
    assert MentorArguments(**prefix, mentor_generic_fraction=0.2)
