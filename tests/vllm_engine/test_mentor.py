"""A mentor on a vLLM engine in the trainer's process, and one behind a server with prefix caching."""

from __future__ import annotations

import json

import launcher
import prefix_cache
import pytest
from vllm_server import served


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the backend answered, and two steps of training with it; the policy generates with transformers."""
    return launcher.run(tmp_path_factory.mktemp("mentor"), "mentor_run.py", {"named": False})[0]


def test_a_prefix_that_was_read_before_comes_from_the_cache(seen):
    first, second = seen["story"]
    assert first["cached_tokens"] == 0
    assert second["cached_tokens"] > 0.8 * second["prompt_tokens"]


def test_concurrent_requests_share_a_call_to_the_engine_and_each_gets_its_own_reply(seen):
    *replies, too_long = seen["at_once"]
    told = [{**reply, "cached_tokens": 0} for reply in seen["alone"]]
    assert [{**reply, "cached_tokens": 0} for reply in replies] == told
    assert len({reply["text"] for reply in replies}) > 3
    assert sum(seen["sizes"]) == 12
    assert len(seen["sizes"]) <= 4
    assert "the mentor has 16384 in all" in too_long["error"]


def test_a_reply_says_whether_it_was_cut_off(seen):
    assert all(reply["truncated"] == (reply["completion_tokens"] == 24) for reply in seen["alone"])


def test_a_request_without_time_is_not_made(seen):
    assert "out of time" in seen["too_late"]["error"]


def test_a_schema_is_enforced(seen):
    assert json.loads(seen["json"]["text"]) in ({"verdict": "HIGH"}, {"verdict": "LOW"})
    assert not seen["json"]["truncated"]


def test_thinking_is_switched_by_role(seen):
    assert seen["not_thinking"]["prompt_tokens"] > seen["alone"][2]["prompt_tokens"]


def test_the_random_states_of_the_training_do_not_move(seen):
    assert seen["random_states_kept"]


def test_a_colocated_trainer_is_refused_while_the_process_holds_the_engine(seen):
    assert "serve the mentor" in seen["refusal"]


def test_a_trainer_is_mentored_by_it(seen):
    steps = [entry for entry in seen["log"] if "mentor/calls" in entry]
    assert len(steps) == 2
    for step in steps:
        # Nonsense cannot be read, so each of the two groups that collapse gets the fallback hint; every call was made.
        assert step["mentor/calls"] >= 4
        assert step["mentor/prompt_tokens"] > step["mentor/cached_tokens"] > 0
        assert (step["mentor/frac_hint_failed"], step["mentor/frac_hint_fallback"]) == (0, 0.5)
        assert step["mentor/reroll_completions"] == 8


def test_with_two_ranks_the_main_one_holds_the_engine_that_the_settings_describe(tmp_path):
    given = {"named": True, "per_device_train_batch_size": 8}
    ranks = launcher.run(tmp_path, "mentor_run.py", given, processes=2)
    calls = [[entry["mentor/calls"] > 0 for entry in rank["log"] if "mentor/calls" in entry] for rank in ranks]
    assert calls == [[True, True], [False, False]]  # only the main process asks, and so knows


def test_most_of_the_prompts_of_an_intervention_come_from_the_cache_of_a_server(tmp_path):
    with served(tmp_path, prefix_cache.sample()) as root:
        result = prefix_cache.measure(root, interventions=4, concurrency=4)
    assert result["cached_share"] >= prefix_cache.TARGET
    assert result["by_role"]["generation"]["cached_share"] > 0.8
    assert result["by_role"]["judgment"]["cached_share"] > 0.8
