"""What TRL's model card says of mentoring: the method, its settings, whether hints helped, and what they took.

Numbers and names alone: no question, answer, completion or hint, no path and no address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from trl_mentor.bill import Bill
from trl_mentor.closing import carried_over
from trl_mentor.counters import Counters, outcomes
from trl_mentor.markdown import literal, table
from trl_mentor.mentor import Mentor
from trl_mentor.records import Arm, RunInfo
from trl_mentor.settings import StrategyKind
from trl_mentor.spending import RoleSpending
from trl_mentor.strategies.prefix import PrefixStrategy
from trl_mentor.tallies import Tallies, Tally
from trl_mentor.uplift import (
    Comparison,
    difference_text,
    rate,
    rate_text,
    uplift,
)

NAME = "MENTOR"
PAPER = {
    "title": "MENTOR: Learning from Failure with On-Policy Pedagogical Intervention",
    "id": "2610.13594",
    "citation": """\
@article{mentor2026,
  title   = {MENTOR: Learning from Failure with On-Policy Pedagogical Intervention},
  journal = {arXiv preprint arXiv:2610.13594},
  year    = {2026}
}""",
}
"""The paper of the method, with the keys of TRL's cards."""

_SOFTWARE = """\
@software{trl_mentor,
  title   = {trl-mentor: MENTOR for Hugging Face TRL},
  author  = {{The trl-mentor contributors}},
  version = {VERSION},
  license = {Apache-2.0}
}"""

_LINK = f"[MENTOR](https://arxiv.org/abs/{PAPER['id']})"
_DONE = {
    str(StrategyKind.MENTOR): "a mentor LLM read the failures and wrote a hint, and the group was re-rolled on hint "
    f"and question within the same training step: {_LINK}, not the method of the same name in arXiv 2510.04140. The "
    "loss is that of GRPO, and the model is for plain questions, without hints.",
    str(StrategyKind.RESAMPLE): "the group was re-rolled on the plain question within the same training step, and no "
    f"mentor was asked: a control for {_LINK}.",
    str(StrategyKind.LUFFY): "a demonstration of the data set took the place of one completion, as in every "
    "other group that has one: [LUFFY](https://arxiv.org/abs/2504.14945). The loss weighs its tokens by their "
    "probability.",
    str(StrategyKind.CRITIQUE): "each completion was criticised and refined, as in every other group, and the best "
    "refinement took the place of one completion: [Critique-GRPO](https://arxiv.org/abs/2506.03106). The loss weighs "
    "its tokens by their probability, and the model is for plain questions, without critiques.",
    str(
        StrategyKind.DAPO
    ): "or every one succeeded, the place of the prompt went to another one of the data set, or it "
    "was sampled again, until some completions were right and some wrong: the dynamic sampling of "
    "[DAPO](https://arxiv.org/abs/2503.14476).",
    str(
        StrategyKind.STATIC_HINT
    ): "the group was re-rolled on a hint of the data set and the question, and trained on "
    "the question alone: [HINT](https://arxiv.org/abs/2510.09388). The model is for plain questions, without hints.",
    PrefixStrategy.name: "nothing was done about it: every prompt was shown with the beginning of its solution, where "
    "the data set has one: [QuestA](https://arxiv.org/abs/2507.13266). The model is for plain questions.",
    str(StrategyKind.SCAFFOLD): "it was sampled again under hints of the data set, and a success under the weakest of "
    "them that helped took the place of one failure: [Scaf-GRPO](https://arxiv.org/abs/2510.19807). The model is for "
    "plain questions, without hints.",
    str(StrategyKind.SRPO): "nothing was done about it: every prompt asked for an answer, a reflection and a second "
    "answer, and a reward paid for the reflection: [SRPO](https://arxiv.org/abs/2506.01713). The model is for "
    "questions that ask for this form.",
    str(StrategyKind.NONE): f"this was counted and nothing done about it: a baseline for {_LINK}.",
}
_OWN = "a strategy of the user's own said what to do."

_LOCAL = re.compile(r"[/.~\\]|[A-Za-z]:[/\\]|file:")


def tags(strategy: str) -> list[str]:
    """What a model is found by on the Hub; `mentor` only if that method was used."""
    return ["trl-mentor", *(["mentor"] if strategy == StrategyKind.MENTOR else [])]


def paper(extended: Mapping[str, str]) -> dict[str, str]:
    """The paper of the method with its citation, and after that the one of the method that it extends."""
    return {**PAPER, "citation": f"{PAPER['citation']}\n\n{extended['citation']}"}


def mentoring_section(run: RunInfo, totals: Counters, mentor: Mentor | None, *, hints: bool) -> str:
    """The section on what a run has done so far, in Markdown.

    `mentor` is the one that was asked, if any; `hints` says whether groups are re-rolled under hints at all.
    """
    parts = [
        "## Mentoring",
        f"Trained with trl-mentor {literal(run.version)}. When every completion of a prompt failed, "
        + _DONE.get(run.strategy, _OWN),
        table(["Setting", "Value"], _settings(run, mentor)),
        "### What came of it",
        table(["Groups", ""], [(name, f"{count:,}") for name, count in outcomes(totals).items()]),
        *(_evidence(run, totals.recovery) if hints else []),
        *carried_over(totals.transfer),
        "### What it took",
        *_bill(Bill.of(totals, priced=run.priced)),
        "Cite trl-mentor as:",
        "```bibtex\n" + _SOFTWARE.replace("VERSION", run.version) + "\n```",
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _settings(run: RunInfo, mentor: Mentor | None) -> Iterator[tuple[str, str]]:
    yield "Strategy", literal(", ".join(filter(None, (run.strategy, run.schedule))))
    if mentor is not None:
        yield "Mentor", literal(", ".join(dict.fromkeys(map(_public, mentor.models))))
        yield "Domain of its prompts", literal(mentor.domain)
        yield "Attempts at a hint, reviews of each", f"{mentor.plan.max_retry}, {mentor.plan.max_refine}"
        if mentor.plan.ablation is not None:
            yield "Ablation", str(mentor.plan.ablation)
    if run.rescue:
        yield "Rows of a re-rolled group that are trained, and the prompt they are scored under", literal(run.rescue)
    if run.dosage:
        yield "When groups are mentored", literal(run.dosage)
    yield "Completions per prompt", str(run.num_generations)
    yield "A completion fails at a success reward of at most", f"{run.success_threshold:g}"
    if run.control_fraction:
        yield "Hints withheld by lot", f"{run.control_fraction:.0%}"
    if run.generic_fraction:
        yield "Hints replaced by a fixed one, by lot", f"{run.generic_fraction:.0%}"
    yield "Processes, seed", f"{run.world_size}, {run.seed}"


def _public(model: str) -> str:
    """The name of a model; a place on a disk is not told."""
    return "a model from a local directory" if _LOCAL.match(model) or Path(model).exists() else model


def _evidence(run: RunInfo, recovery: Tallies) -> Iterator[str]:
    """Whether hints did more than a second roll; a claim only where a lot decided who got one."""
    yield _verdict(run, uplift(recovery))
    if generic := uplift(recovery, against=Arm.GENERIC):
        yield f"With hints over a fixed hint: {difference_text(generic)}."
    arms = {arm: tally for arm in Arm if (tally := recovery[f"{arm}/all"]).groups}
    if arms:
        rows = [(_UNDER[arm], f"{tally.groups:,}", f"{tally.hits:,}", _share(tally)) for arm, tally in arms.items()]
        yield table(["Re-rolled under", "Groups", "Recovered", "Share [95 % interval]"], rows)
        yield "A group recovers if a completion of its re-roll succeeds; this says nothing of accuracy without hints."


def _verdict(run: RunInfo, comparison: Comparison | None) -> str:
    if not run.control_fraction:
        return "No group went without its hint by lot, so what hints do beyond a second roll was not measured."
    if comparison is None:
        return "Hints are withheld by lot, but there are no groups of both kinds yet: nothing is claimed."
    shown = "excludes 0" if comparison.low > 0 or comparison.high < 0 else "includes 0, so no effect is shown"
    return (
        "Recovery with hints over recovery without, in percentage points with the 95 % interval: "
        f"**{difference_text(comparison)}**. The interval {shown}."
    )


_UNDER = {Arm.HINT: "its hint", Arm.CONTROL: "the plain question", Arm.GENERIC: "a fixed hint"}


def _share(tally: Tally) -> str:
    found = rate(tally)
    return "" if found is None else rate_text(found)


def _bill(bill: Bill) -> Iterator[str]:
    policy = {**bill.policy_parts(), "all": bill.policy_tokens}
    yield table(
        ["Tokens generated by the policy", ""], [(name, f"{count:,}") for name, count in policy.items() if count]
    )
    if bill.roles:
        columns = ["Mentor", "Calls", "Failed", "Prompt tokens", "Of them cached", "Completion tokens"]
        yield table(columns, [_role(name, spent) for name, spent in {**bill.roles, "all": bill.mentor}.items()])
    seconds = {"training": bill.seconds, **bill.seconds_parts()}
    yield table(["Seconds", "", "Share"], [(name, f"{s:,.1f}", f"{bill.share(s):.1%}") for name, s in seconds.items()])
    if bill.cost is not None:
        yield f"The mentor's tokens cost {bill.cost:,.4g}, in the currency of the prices that were given."


def _role(name: str, spent: RoleSpending) -> tuple[str, ...]:
    counts = (spent.calls, spent.errors, spent.prompt_tokens, spent.cached_tokens, spent.completion_tokens)
    return (literal(name), *(f"{count:,}" for count in counts))
