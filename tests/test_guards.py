from __future__ import annotations

import pytest

from trl_mentor.errors import ConfigError
from trl_mentor.guards import refuse_local_mentor_under_zero3
from trl_mentor.settings import MentorArguments


def test_a_local_mentor_is_refused_where_loading_it_on_one_rank_would_hang():
    local = MentorArguments(mentor_backend="transformers", mentor_model="m")
    with pytest.raises(ConfigError, match="mentor_backend='openai'"):
        refuse_local_mentor_under_zero3(local, zero3=True)
    refuse_local_mentor_under_zero3(local, zero3=False)
    refuse_local_mentor_under_zero3(MentorArguments(mentor_model="m"), zero3=True)
