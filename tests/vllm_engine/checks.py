"""What holds of every run, colocated or served, whatever the ranks: statements about what `train.py` wrote."""

from __future__ import annotations

from typing import Any

CLOSE = 1e-3
"""Log-probabilities of engine and policy agree to about 1e-6 in float32; those of other weights differ by far more."""
G = 4


def assert_engine_holds_the_policys_weights(run: dict[str, Any]) -> None:
    """After each batch, its re-roll included: the policy's weights of that step, not those that it began with."""
    assert len(run["gaps"]) == 4
    assert max(gap["policy"] for gap in run["gaps"]) < CLOSE
    assert run["gaps"][0]["initial"] < CLOSE
    assert min(gap["initial"] for gap in run["gaps"][1:]) > 10 * CLOSE


def assert_rows_were_sampled_under_the_prompt_they_are_trained_on(run: dict[str, Any]) -> None:
    assert max(gap for batch in run["sampling_gaps"] for gap in batch) < CLOSE
    assert max(entry["sampling/sampling_logp_difference/max"] for entry in run["log"][:4]) < CLOSE


def assert_each_row_came_from_the_engine(ranks: list[dict[str, Any]], calls: list[dict[str, Any]]) -> None:
    """Every row of a batch is a prompt that was sent and the completion that came back for that very prompt."""
    came = {pair for call in calls for pair in pairs(call["prompts"], call["completions"])}
    rows = {pair for rank in ranks for batch in rank["batches"] for pair in pairs(*zip(*batch, strict=True))}
    assert rows <= came
    assert hinted(ranks)


def assert_rolls_and_rerolls_alternate_with_the_same_parameters(calls: list[dict[str, Any]]) -> None:
    assert len(calls) == 8
    assert len({call["params"] for call in calls}) == 1
    assert all(
        len(again["prompts"]) < len(first["prompts"]) for first, again in zip(calls[::2], calls[1::2], strict=True)
    )


LIMIT = 20
"""Tokens that the engine takes per sequence in the runs whose questions are long."""
LONG = {3: 14, 7: 16}
"""Long questions, in tokens: one fits with a completion of 6 but has no room for a hint, the other is over that."""


def assert_no_question_is_cut_and_no_prompt_too_long(calls: list[dict[str, Any]]) -> None:
    """Long questions are sent as they are; the hint of another one goes through."""
    sent = [prompt for call in calls for prompt in call["prompts"]]
    for row, tokens in LONG.items():
        token = 10 + row
        assert {tuple(prompt) for prompt in sent if token in prompt} == {(token,) * tokens}
    assert any(40 in prompt for prompt in sent)
    assert max(len(prompt) for prompt in sent if 40 in prompt) <= LIMIT - 6


def hinted(ranks: list[dict[str, Any]]) -> list[list[int]]:
    """The prompts of the re-rolled rows, recognised by tokens of the hint."""
    return [prompt for rank in ranks for batch in rank["batches"] for prompt, _ in batch if 40 in prompt]


def pairs(prompts: Any, completions: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(tuple(ids), tuple(more)) for ids, more in zip(prompts, completions, strict=True)]


def groups(rows: list[Any]) -> list[list[Any]]:
    return [rows[start : start + G] for start in range(0, len(rows), G)]
