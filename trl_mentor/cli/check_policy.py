"""How often groups would collapse: the policy is sampled at an endpoint and scored by the recipe's rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import openai

from trl_mentor.backends.endpoint import own_headers, read_key
from trl_mentor.cli.check_findings import Finding, Setup, fail, ok, skipped, warn
from trl_mentor.cli.check_scoring import RewardError, score, success_rule
from trl_mentor.collapse import group_states
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import GroupState, Prompt

AT_ONCE = 16
_CALL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of the policy."""

    text: str
    truncated: bool


def check_collapse(setup: Setup) -> Finding:
    """The share of groups that collapse, over the first rows, if there is a policy to ask."""
    url, model = setup.options.policy_url, setup.options.policy_model
    rows, size = setup.usable_rows, setup.training.num_generations
    if url is None:
        return skipped("collapse", "no policy to ask (--policy-url and --policy-model)")
    if not setup.rewards or not rows or setup.script.reward_model_name_or_path:
        return skipped("collapse", "no rows, or no reward functions that can be called here")
    repeated = [row for row in rows for _ in range(size)]
    samples = outcome_of(lambda: _samples(setup, [row["prompt"] for row in repeated]))
    if isinstance(samples, Exception):
        fix = "correct --policy-url, which usually ends in /v1, and --policy-model"
        return fail("collapse", f"the policy {model} at {url} cannot be sampled: {describe(samples)}", fix)
    rule = success_rule(setup.rewards, setup.training)
    try:
        scored = score(setup.rewards, rule, repeated, [sample.text for sample in samples])
    except RewardError as error:
        return fail("collapse", str(error), "correct the function, or see the finding on the reward")
    return _counted(group_states(scored.successes, size, rule.threshold), samples, size)


def _counted(states: Sequence[GroupState], samples: Sequence[Sample], size: int) -> Finding:
    count = Counter(states)
    collapsed = count[GroupState.COLLAPSED] / len(states)
    cut = sum(sample.truncated for sample in samples) / len(samples)
    figures: dict[str, Any] = {
        "collapse_share": collapsed,
        "groups": len(states),
        "states": {state.value: count[state] for state in GroupState},
        "truncated_share": cut,
    }
    found = (
        f"{count[GroupState.COLLAPSED]} of {len(states)} groups of {size} collapse, {count[GroupState.ALL_CORRECT]} "
        f"are all correct, {count[GroupState.MIXED]} mixed; {cut:.0%} of completions are cut off"
    )
    if cut > 0.5:
        fix = "raise max_completion_length: what is cut off fails whatever the mentor says"
        return warn("collapse", found, fix, **figures)
    if collapsed == 0:
        return warn("collapse", found, "a mentor has nothing to do on these rows; take harder data", **figures)
    return ok("collapse", found, **figures)


def _samples(setup: Setup, prompts: Sequence[Prompt]) -> list[Sample]:
    key = read_key(setup.options.policy_key_env)
    url = str(setup.options.policy_url)
    with (
        openai.OpenAI(
            api_key=key, base_url=url, max_retries=2, timeout=_CALL_SECONDS, default_headers=own_headers(key)
        ) as client,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        return list(threads.map(lambda prompt: _sample(setup, client, prompt), prompts))


def _sample(setup: Setup, client: openai.OpenAI, prompt: Any) -> Sample:
    training = setup.training
    options: dict[str, Any] = {
        "model": str(setup.options.policy_model),
        "max_tokens": training.max_completion_length,
        "temperature": training.temperature,
        "top_p": training.top_p,
    }
    if isinstance(prompt, str):
        plain = client.completions.create(prompt=prompt, **options).choices[0]
        return Sample(plain.text, plain.finish_reason == "length")
    chat = client.chat.completions.create(messages=prompt, **options).choices[0]
    return Sample(chat.message.content or "", chat.finish_reason == "length")
