"""Strategies and constructions as further runs on an engine that is up, and what holds of the rows of each."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import checks

CASES: dict[str, dict[str, Any]] = {
    "mixed": {"mentor_rescue": "mixed"},
    "scaffold": {"mentor_strategy": "scaffold", "mentor_start_step": 0.0},
    "robust": {"mentor_preset": "robust"},
    "robust, shaped": {"mentor_preset": "robust", "mentor_rescue_shaping": "luffy"},
    "HINT": {"mentor_strategy": "static_hint"},
    "QuestA": {
        "mentor_strategy": "static_hint",
        "mentor_static_hint": "prefix",
        "mentor_prefix_shares": [0.9, 0.8],  # a demonstration of eighteen characters shows nothing of less
    },
    "luffy": {"mentor_strategy": "luffy", "scale_rewards": "none"},
    "critique": {
        "mentor_strategy": "critique",
        "mentor_critique": "simple",
        "mentor_critique_template": "{question} {attempt} {critique}",  # at most 12 tokens
    },
    "dapo": {"mentor_strategy": "dapo", "mentor_max_rounds": 3, "late": 1},
}
MOVED = {"robust": (1, 0), "robust, shaped": (1, 0), "HINT": (4, 0), "luffy": (1, 1), "critique": (1, 1)}
"""Rows of a hard group and of an easy one that are scored under another prompt than they were sampled under."""


def assert_rerolls_were_sampled_under_their_own_prompts(ranks: list[dict[str, Any]], calls: list[Any]) -> None:
    """Each row of each re-roll, trained or not, came back for its prompt, and has its log-probabilities under that."""
    rows = [row for rank in ranks for roll in rank["rerolls"] for row in roll]
    assert [row["prompt"] for row in rows] == [row["asked"] for row in rows]
    assert Counter(checks.pairs(*zip(*((row["asked"], row["completion"]) for row in rows), strict=True))) <= came(
        calls
    )
    assert max(row["gap"] for row in rows) < checks.CLOSE


def assert_prompts_differ_within_a_reroll(name: str, ranks: list[dict[str, Any]]) -> None:
    """Of four rows of `mixed` one is asked the plain question, and each rung of `scaffold` is asked once."""
    for rolls in zip(*(rank["rerolls"] for rank in ranks), strict=True):
        asked = Counter(tuple(row["asked"]) for roll in rolls for row in roll)
        if name == "mixed":
            assert all(times == (3 if 40 in prompt else 1) for prompt, times in asked.items())
            assert len(asked) in (2, 4)
        else:
            assert all(40 in prompt for prompt in asked)
            assert len(asked) in (3, 6)


def assert_moved_rows_have_a_ratio_of_1_and_others_trls_own(name: str, ranks: list[dict[str, Any]]) -> None:
    ratios = [ratio for rank in ranks for batch in rank["ratios"] for ratio in batch]
    moved = [ratio["found"] for ratio in ratios if math.isnan(ratio["own"])]
    assert moved == [1.0] * ranks[0]["off_context_rows"]
    others = [ratio for ratio in ratios if not math.isnan(ratio["own"])]
    assert max(abs(ratio["found"] / ratio["own"] - 1) for ratio in others) < 1e-6
    assert any(ratio["found"] != 1.0 for ratio in others)
    for rank in ranks:
        assert max(entry["sampling/sampling_logp_difference/max"] for entry in rank["log"][:4]) < checks.CLOSE
    hard, easy = MOVED.get(name, (0, 0))
    for group in trained(ranks):
        is_hard = group[0]["prompt"][0] % 2 == 1
        assert sum(row["moved"] for row in group) == (hard if is_hard else easy)


def assert_trained_rows_are_what_the_strategy_wants(name: str, ranks: list[dict[str, Any]], calls: list[Any]) -> None:
    """Rows that were not moved came back for the prompt that they are trained on; the others are plain questions."""
    found = came(calls)
    rerolled = {tuple(row["completion"]) for rank in ranks for roll in rank["rerolls"] for row in roll}
    for group in trained(ranks):
        for place, row in enumerate(group):
            prompt, completion = tuple(row["prompt"]), tuple(row["completion"])
            if not row["moved"]:
                assert (prompt, completion) in found
                continue
            assert prompt == (prompt[0],) * 2
            if name == "luffy":
                assert (place, completion) == (3, (43, 44, 45, 46, prompt[0], 1))
            else:
                assert completion in rerolled
                assert name != "critique" or place == 0
    hinted = {sum(40 in row["prompt"] for row in group) for group in trained(ranks)}
    assert hinted == {"mixed": {0, 3}, "scaffold": {0, 1}}.get(name, {0})
    assert name != "QuestA" or all(43 in row["prompt"] for group in trained(ranks) for row in group)


def assert_rounds_are_calls(calls: list[dict[str, Any]], *, rows: int) -> None:
    """A first roll of so many rows and one or two smaller ones in each of four steps, all with equal parameters."""
    sizes = [len(call["prompts"]) for call in calls]
    firsts = [i for i, size in enumerate(sizes) if size == rows]
    assert len(firsts) == 4
    assert {later - first for first, later in pairwise([*firsts, len(sizes)])} in ({3}, {2, 3})
    assert len({call["params"] for call in calls}) == 1


def trained(ranks: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The groups of all batches, whichever ranks their rows are on."""
    found = []
    for batch in range(len(ranks[0]["batches"])):
        rows = [
            {"prompt": prompt, "completion": completion, "moved": math.isnan(ratio["own"])}
            for rank in ranks
            for (prompt, completion), ratio in zip(rank["batches"][batch], rank["ratios"][batch], strict=True)
        ]
        found += checks.groups(rows)
    return found


def came(calls: list[dict[str, Any]]) -> Counter[Any]:
    """Prompts that an engine was sent, each with a completion that came back for it."""
    return Counter(pair for call in calls for pair in checks.pairs(call["prompts"], call["completions"]))
