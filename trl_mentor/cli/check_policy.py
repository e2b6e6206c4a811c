"""How often groups would collapse: the policy is sampled at an endpoint and scored by the recipe's rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from trl_mentor.backends.api import API
from trl_mentor.backends.completion import read_plain_reply, read_reply
from trl_mentor.backends.endpoint import read_key
from trl_mentor.causes import check_routes, format_columns
from trl_mentor.cli.check_child import completion_for
from trl_mentor.cli.check_findings import Finding, Setup, fail, ok, skipped, warn
from trl_mentor.cli.check_process import ENDED_FIX, UserCodeError
from trl_mentor.cli.check_scoring import RewardError, Scored, score, success_rule
from trl_mentor.collapse import SuccessRule, group_states
from trl_mentor.group_reader import GroupReader, Member
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import CollapsedGroup, GroupState, Prompt, Reply, Route, Row
from trl_mentor.setting_checks import json_object

AT_ONCE = 16
_CALL_SECONDS = 300.0


def check_collapse(setup: Setup) -> tuple[Finding, CollapsedGroup | None]:
    """The share of groups that collapse over the first rows and why, and one of those that go to the mentor."""
    url, model = setup.options.policy_url, setup.options.policy_model
    rows, size = setup.usable_rows, setup.training.num_generations
    if url is None:
        return skipped("collapse", "no policy to ask (--policy-url and --policy-model)"), None
    if not setup.rewards or not rows or setup.script.reward_model_name_or_path:
        return skipped("collapse", "no rows, or no reward functions that can be called here"), None
    repeated = [row for row in rows for _ in range(size)]
    samples = outcome_of(lambda: _samples(setup, [row["prompt"] for row in repeated]))
    if isinstance(samples, Exception):
        fix = "correct --policy-url, which usually ends in /v1, and --policy-model"
        return fail("collapse", f"the policy {model} at {url} cannot be sampled: {describe(samples)}", fix), None
    rule = success_rule(setup.rewards, setup.training)
    try:
        scored = score(setup.rewards, rule, repeated, [sample.text for sample in samples])
    except RewardError as error:
        return fail("collapse", str(error), "correct the function, or see the finding on the reward"), None
    except UserCodeError as ended:
        return fail("collapse", str(ended), ENDED_FIX), None
    states = group_states(scored.successes, size, rule.threshold)
    groups = _collapsed(setup, rule, states, samples, scored)
    routes = check_routes(json_object("mentor_routes", setup.settings.mentor_routes))
    asked = [group for group in groups if routes[group.cause] is Route.MENTOR]
    return _counted(states, groups, len(asked), samples), asked[0] if asked else None


def _collapsed(
    setup: Setup, rule: SuccessRule, states: Sequence[GroupState], samples: Sequence[Reply], scored: Scored
) -> list[CollapsedGroup]:
    """The groups that collapse, as the training would read them."""
    size, settings = setup.training.num_generations, setup.settings
    names = [reward.name for reward in setup.rewards]
    formats = format_columns(names, settings.mentor_format_rewards, settings.mentor_success_rewards or ())
    reader = GroupReader(rule, setup.answer_columns, formats)
    groups = []
    for index, (state, example) in enumerate(zip(states, setup.usable_rows, strict=True)):
        if state is GroupState.COLLAPSED:
            members = [
                Member(number, _row(example["prompt"], samples, scored, number), samples[number].truncated, example)
                for number in range(index * size, (index + 1) * size)
            ]
            groups.append(reader.read(index, members))
    return groups


def _row(prompt: Prompt, samples: Sequence[Reply], scored: Scored, number: int) -> Row:
    completion = completion_for(prompt, samples[number].text)
    return Row([], [], completion, None, scored.rewards[number], scored.reported[number])


def _counted(
    states: Sequence[GroupState], groups: Sequence[CollapsedGroup], asked: int, samples: Sequence[Reply]
) -> Finding:
    count, causes = Counter(states), Counter(group.cause.value for group in groups)
    collapsed = count[GroupState.COLLAPSED] / len(states)
    cut = sum(sample.truncated for sample in samples) / len(samples)
    figures: dict[str, Any] = {
        "collapse_share": collapsed,
        "mentored_share": asked / len(states),
        "causes": dict(causes),
        "groups": len(states),
        "states": {state.value: count[state] for state in GroupState},
        "truncated_share": cut,
    }
    why = ", ".join(f"{name} {number}" for name, number in causes.most_common())
    found = (
        f"{len(groups)} of {len(states)} groups collapse{f' ({why})' if why else ''}, {asked} go to the mentor; "
        f"{count[GroupState.ALL_CORRECT]} are all correct, {count[GroupState.MIXED]} mixed; {cut:.0%} of completions "
        "are cut off"
    )
    if cut > 0.5:
        fix = "raise max_completion_length: what is cut off fails whatever the mentor says"
        return warn("collapse", found, fix, **figures)
    if collapsed == 0:
        return warn("collapse", found, "a mentor has nothing to do on these rows; take harder data", **figures)
    return ok("collapse", found, **figures)


def _samples(setup: Setup, prompts: Sequence[Prompt]) -> list[Reply]:
    name = setup.options.policy_key_env
    api = API(
        str(setup.options.policy_url).rstrip("/"),
        read_key(name),
        model=str(setup.options.policy_model),
        key_name=name,
        max_retries=2,
    )
    with closing(api), ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda prompt: _sample(setup, api, prompt), prompts))


def _sample(setup: Setup, api: API, prompt: Any) -> Reply:
    training, plain = setup.training, isinstance(prompt, str)
    body: dict[str, Any] = {
        "model": str(setup.options.policy_model),
        "prompt" if plain else "messages": prompt,
        "max_tokens": training.max_completion_length,
        "temperature": training.temperature,
        "top_p": training.top_p,
    }
    path, read = ("/completions", read_plain_reply) if plain else ("/chat/completions", read_reply)
    return api.run(lambda tries: api.post(path, body, read, tries), _CALL_SECONDS)
