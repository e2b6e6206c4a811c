"""The bill of a run: tokens, seconds and money, in the same terms for every strategy. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from trl_mentor.counters import Counters
from trl_mentor.records import Role
from trl_mentor.spending import RoleSpending, Spending


@dataclass(frozen=True, slots=True)
class Bill:
    """What training took, evaluations left out. Tokens of the policy are those that it generated."""

    first_roll_tokens: int = 0
    """Completions of every prompt, without a hint: what plain GRPO generates too."""
    reroll_tokens: int = 0
    """Second completions of collapsed groups, whatever the strategy re-rolls them under."""
    control_tokens: int = 0
    """Second completions of groups whose hint was withheld by lot: the price of the proof."""
    padding_tokens: int = 0
    """Completions generated a second time so that every process generates equally many, and thrown away."""
    probe_tokens: int = 0
    """Completions of probes, which are not trained on."""
    spending: Spending = Spending()
    """What the mentor took."""
    seconds: float = 0.0
    """Wall-clock seconds from the beginning of training to its end, over all resumes."""
    waited_seconds: float = 0.0
    """Those of them in which training waited for the mentor."""
    hidden_seconds: float = 0.0
    """Those in which the mentor worked and training went on."""
    reroll_seconds: float = 0.0
    """Those in which re-rolls were generated and scored."""
    cost: float | None = None
    """What the mentor's tokens cost; None if no prices were given."""

    @classmethod
    def of(cls, counters: Counters, *, priced: bool) -> Bill:
        """The bill for what was counted; `priced` says whether there were prices (`RunInfo.priced`)."""
        plain = counters.reroll_tokens - counters.control_tokens - counters.padding_tokens
        return cls(
            first_roll_tokens=counters.policy_tokens - counters.reroll_tokens - counters.probe_tokens,
            reroll_tokens=plain,
            control_tokens=counters.control_tokens,
            padding_tokens=counters.padding_tokens,
            probe_tokens=counters.probe_tokens,
            spending=counters.mentor,
            seconds=counters.seconds,
            waited_seconds=counters.mentor_seconds,
            hidden_seconds=counters.hidden_seconds,
            reroll_seconds=counters.reroll_seconds,
            cost=counters.mentor.cost if priced else None,
        )

    @property
    def policy_tokens(self) -> int:
        """All completion tokens that the policy generated in training."""
        return sum(self.policy_parts().values())

    @property
    def roles(self) -> Mapping[str, RoleSpending]:
        """What the mentor took, by the value of `Role`."""
        return self.spending.roles

    @property
    def mentor(self) -> RoleSpending:
        """All roles of the mentor together."""
        return self.spending.total

    @property
    def mentor_tokens(self) -> int:
        """Prompt and completion tokens of the mentor, as its endpoints counted them."""
        return self.spending.total.tokens

    def policy_parts(self) -> dict[str, int]:
        """What `policy_tokens` consist of, by the names that a person reads."""
        return {
            "first rolls": self.first_roll_tokens,
            "re-rolls": self.reroll_tokens,
            "re-rolls with the hint withheld": self.control_tokens,
            "padding between processes": self.padding_tokens,
            "probes": self.probe_tokens,
        }

    def seconds_parts(self) -> dict[str, float]:
        """What became of some of the `seconds`, by the names that a person reads; the last may overlap the others."""
        return {
            "waited for the mentor": self.waited_seconds,
            "re-rolls": self.reroll_seconds,
            "mentor at work meanwhile": self.hidden_seconds,
        }

    def share(self, seconds: float) -> float:
        """Which part of the time of training so many seconds are; 0 before any has passed."""
        return min(seconds / self.seconds, 1.0) if self.seconds > 0 else 0.0

    def rows(self) -> list[tuple[str, str]]:
        """What a person reads, as pairs of a name and a value; parts of what comes before are indented."""
        spent = self.mentor
        return [
            ("policy tokens", f"{self.policy_tokens:,}"),
            *((f"  {name}", f"{tokens:,}") for name, tokens in self.policy_parts().items() if tokens),
            ("mentor tokens", _in_and_out(spent)),
            *((f"  {name}", _in_and_out(taken)) for name, taken in self.roles.items() if taken.calls),
            *((f"  {name}", f"{tokens:,}") for name, tokens in _kinds(spent).items() if tokens),
            ("mentor calls", f"{spent.calls:,}"),
            *((f"  {name}", f"{calls:,}") for name, calls in _troubles(spent).items() if calls),
            ("seconds", f"{self.seconds:,.1f}"),
            *((f"  {name}", self._seconds(seconds)) for name, seconds in self.seconds_parts().items()),
            *([] if self.cost is None else [("cost of the mentor", f"{self.cost:,.4g}")]),
        ]

    def metrics(self) -> dict[str, float]:
        """All figures by a flat name, for `train_results.json`."""
        names = ("calls", "errors", "retries", "replayed", "prompt_tokens", "completion_tokens")
        more = ("cached_tokens", "thinking_tokens")
        by_role = {f"{role}_{name}": getattr(self.spending.of(role), name) for role in Role for name in names}
        cost = {} if self.cost is None else {"cost": self.cost}
        found = {
            "policy_tokens": self.policy_tokens,
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("spending", "cost")},
            **{f"mentor_{name}": getattr(self.mentor, name) for name in (*names, *more)},
            **by_role,
            **cost,
        }
        return {f"mentor/bill/{name}": value for name, value in found.items()}

    def _seconds(self, seconds: float) -> str:
        return f"{seconds:,.1f} ({self.share(seconds):.0%})"


def _kinds(spent: RoleSpending) -> dict[str, int]:
    return {"cached, of those in": spent.cached_tokens, "thinking, of those out": spent.thinking_tokens}


def _troubles(spent: RoleSpending) -> dict[str, int]:
    return {
        "failed or not understood": spent.errors,
        "repeated because of that": spent.retries,
        "not made: replies from the cache": spent.replayed,
    }


def _in_and_out(spent: RoleSpending) -> str:
    return f"{spent.prompt_tokens:,} in, {spent.completion_tokens:,} out"
