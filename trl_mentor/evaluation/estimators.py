"""The figures of an evaluation, from lists of what the completions of a problem were worth.

A completion is right or wrong; a program is right only if every test passes. The mean of right over all completions
of a problem is its pass@1 and also its avg@k for any k: the mean of k completions drawn from n has that expectation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import comb, lcm
from statistics import fmean


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Chance that at least one of k completions is right, estimated from `samples` of which `right` are.

    Chen et al. 2021 (arXiv 2107.03374), 1 - C(n - c, k) / C(n, k): the share of the subsets of k with a right one, so
    it is unbiased. Whole numbers until the last division, so it is exact for any n. Raises `ValueError` for k > n.
    """
    _check_k(k, samples)
    if not 0 <= right <= samples:
        raise ValueError(f"expected between 0 and {samples} right completions, got {right}")
    subsets = comb(samples, k)
    return (subsets - comb(samples - right, k)) / subsets


def maj_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """Chance that the most frequent answer of k completions is right: the mean over all subsets of k, so unbiased.

    The vote goes over texts that are equal for equal answers; None does not vote. A tie is split evenly, and a subset
    without a vote is wrong. Equal answers that were judged differently count by the share that was judged right.
    Raises `ValueError` for k > n.
    """
    if len(answers) != len(right):
        raise ValueError(f"expected one verdict per answer, got {len(right)} for {len(answers)}")
    _check_k(k, len(answers))
    verdicts = defaultdict(list)
    for answer, verdict in zip(answers, right, strict=True):
        if answer is not None:
            verdicts[answer].append(verdict)
    unit = lcm(*map(len, verdicts.values()))
    parties = [(len(party), sum(party) * unit // len(party)) for party in verdicts.values()]
    won = sum((_won(parties, votes, len(answers), k) for votes in range(1, k + 1)), Fraction())
    return float(won / unit / comb(len(answers), k))


def _won(parties: Sequence[tuple[int, int]], votes: int, samples: int, k: int) -> Fraction:
    """What the winners are worth, summed over the subsets of k in which they have exactly so many votes each.

    A party is the size of an answer and its worth. One after another gives some of its completions: `ways` are the
    choices by completions drawn and parties with `votes`, `worths` the same, each choice times its leaders' worth.
    """
    contenders = [party for party in parties if party[0] >= votes]
    if not any(worth for _, worth in contenders):
        return Fraction()
    left = samples
    ways, worths = {(0, 0): 1}, {(0, 0): 0}
    for size, own in contenders:
        left -= size
        before, ways, worths = (ways, worths), defaultdict(int), defaultdict(int)
        for (drawn, leaders), number in before[0].items():
            sum_so_far = before[1][drawn, leaders]
            for taken in range(max(0, k - drawn - left), min(votes, k - drawn) + 1):
                state, choices = (drawn + taken, leaders + (taken == votes)), comb(size, taken)
                ways[state] += number * choices
                worths[state] += choices * (sum_so_far + (number * own if taken == votes else 0))
    rest = samples - sum(size for size, _ in contenders)
    return sum(
        (Fraction(worth * comb(rest, k - drawn), leaders) for (drawn, leaders), worth in worths.items() if leaders),
        Fraction(),
    )


def weighted_average(values: Sequence[float], problems: Sequence[int]) -> float:
    """The paper's sample-weighted average over benchmarks, sum(n_b acc_b) / sum(n_b), with n_b problems each."""
    return fmean(values, weights=problems)


def macro_average(values: Sequence[float]) -> float:
    """The plain mean over benchmarks, in which 30 problems weigh as much as 500."""
    return fmean(values)


def relative_gain(value: float, base: float) -> float | None:
    """How much higher a figure is as a share of the base run's; None if that is 0. The paper's gains are these."""
    return (value - base) / base if base else None


def share(flags: Iterable[bool]) -> float:
    """The share of completions that are, say, truncated or without a readable answer."""
    return fmean(flags)


def _check_k(k: int, samples: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"expected k between 1 and the {samples} completions of the problem, got {k}")
