from __future__ import annotations

import pytest

from trl_mentor.errors import ConfigError
from trl_mentor.settings import MentorArguments


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mentor_strategy", "mentr"),
        ("mentor_backend", "anthropic"),
        ("mentor_max_retry", 0),
        ("mentor_max_refine", -1),
        ("mentor_deadline", 0),
        ("mentor_call_timeout", float("nan")),
        ("mentor_temperature", -0.1),
        ("mentor_max_concurrency", 0),
        ("mentor_attempt_budget", 0),
        ("mentor_max_retry", [1]),
        ("mentor_call_timeout", True),
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
