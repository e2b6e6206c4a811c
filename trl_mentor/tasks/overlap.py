"""Which training problems are benchmark problems: shared word n-grams, exact and in memory.

The rules and their sources are in docs/decontamination.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trl_mentor.answer_forms import READ, tokenize
from trl_mentor.errors import ConfigError

GRAM_WORDS = 13
"""Length of an n-gram: the longest of GPT-3's decontamination (Brown et al. 2020, appendix C)."""

SHORTEST_GRAM = 8
"""Problems of fewer words only match training problems of just the same words; GPT-3's shortest n-gram."""

COMMON = 10
"""An n-gram in more texts than this is a phrase, not a problem; GPT-3's number."""

MIN_SHARE = 0.5
"""The part of a benchmark problem that must be found in one training problem (as in Cosmopedia's decontamination)."""

_SHOWN = 40  # words of a shared text
_COMMANDS = (
    "frac le leq leqslant ge geq geqslant lt gt ne neq pm circ ldots dots cdots quad qquad begin end "
    "displaystyle mathbb mathcal operatorname textit"
)
_SYMBOLS = frozenset(_COMMANDS.split())
"""LaTeX commands for layout and for what plain text writes as a symbol; symbols are not compared."""
_WORDS = {"\u2208": "in", "\u2192": "to"}
"""Symbols whose LaTeX commands are words."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The question of a problem, and the id of the problem."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """A training problem that holds a benchmark problem, or most of it."""

    benchmark: str
    problem: str
    """Id of the benchmark's problem."""
    row: str
    """Id of the training problem."""
    share: float
    """The part of the benchmark problem's words that is shared, from 0 to 1."""
    shared: str
    """The longest run of shared words, of which the first 40, as they are compared."""


@dataclass(frozen=True, slots=True)
class _Target:
    """A benchmark problem as it is looked for."""

    benchmark: str
    id: str
    words: tuple[str, ...]
    size: int
    """Words of its n-grams."""
    grams: tuple[int, ...]
    """Their hashes, in order."""


def words(text: str) -> tuple[str, ...]:
    """The words and numbers of a problem without punctuation, symbols, drawings and LaTeX layout, casefolded.

    The first 50,000 characters are read.
    """
    read = tokenize(_without_drawings(text)[:READ])
    tokens = (_WORDS.get(token, token.lstrip("-\\").casefold()) for token in read)
    return tuple(token for token in tokens if token not in _SYMBOLS and any(map(str.isalnum, token)))


def find_overlaps(
    rows: Sequence[Passage],
    benchmarks: Mapping[str, Collection[Passage]],
    *,
    gram_words: int = GRAM_WORDS,
    min_share: float = MIN_SHARE,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Overlap]:
    """Every pair of a training row and a benchmark problem that overlap, in the order of the rows.

    They overlap if the row's n-grams cover the whole problem, or if those that are no common phrase cover
    `min_share` of it. `progress` is told after each row how many have been read. Memory is linear in the benchmarks
    and in what is found; time is linear in the texts and in the pairs that share a run which is no phrase.
    """
    if gram_words < SHORTEST_GRAM or not 0 <= min_share <= 1:
        raise ConfigError(
            f"n-grams have at least {SHORTEST_GRAM} words and the share is from 0 to 1, "
            f"got {gram_words} words and {min_share:g}"
        )
    targets = [_target(name, each, gram_words) for name, passages in benchmarks.items() for each in passages]
    where = _index(targets)
    seen: dict[int, int] = {gram: len(places) for grams in where.values() for gram, places in grams.items()}
    candidates = []
    for place, row in enumerate(rows):
        found = _found(words(row.text), where)
        for gram in found:
            seen[gram] += 1
        if found:
            candidates.append(place)
        progress(place + 1)
    phrases = {gram for gram, texts in seen.items() if texts > COMMON}
    _narrow(where, targets, phrases)
    overlaps = (_overlaps(rows[place], targets, where, phrases, min_share) for place in candidates)
    return [overlap for found_in_row in overlaps for overlap in found_in_row]


def _target(benchmark: str, passage: Passage, gram_words: int) -> _Target:
    content = words(passage.text)
    size = min(gram_words, len(content))
    return _Target(benchmark, passage.id, content, size, tuple(_grams(content, size)))


def _grams(content: tuple[str, ...], size: int) -> Iterator[int]:
    if size:
        yield from (hash(content[start : start + size]) for start in range(len(content) - size + 1))


def _index(targets: Sequence[_Target]) -> dict[int, dict[int, list[int]]]:
    """Length of n-grams -> n-gram -> the targets that have it."""
    where: dict[int, dict[int, list[int]]] = {}
    for place, target in enumerate(targets):
        grams = where.setdefault(target.size, defaultdict(list))
        for gram in dict.fromkeys(target.grams):
            grams[gram].append(place)
    return where


def _narrow(where: dict[int, dict[int, list[int]]], targets: Sequence[_Target], phrases: set[int]) -> None:
    """Let phrases lead only to the targets that begin with them and are nothing else, so that few are looked at."""
    for grams in where.values():
        for gram in phrases & grams.keys():
            grams[gram] = [
                place
                for place in grams[gram]
                if targets[place].grams[0] == gram and phrases.issuperset(targets[place].grams)
            ]


def _found(content: tuple[str, ...], where: Mapping[int, Mapping[int, list[int]]]) -> set[int]:
    """The n-grams of the benchmarks that a training problem has."""
    found: set[int] = set()
    for size, grams in where.items():
        if size >= SHORTEST_GRAM or size == len(content):
            found.update(gram for gram in _grams(content, size) if gram in grams)
    return found


def _overlaps(
    row: Passage,
    targets: Sequence[_Target],
    where: Mapping[int, Mapping[int, list[int]]],
    phrases: Collection[int],
    min_share: float,
) -> Iterator[Overlap]:
    found = _found(words(row.text), where)
    places = {place for grams in where.values() for gram in found for place in grams.get(gram, ())}
    for target in (targets[place] for place in sorted(places)):
        shared = [gram in found for gram in target.grams]
        if not all(shared):
            shared = [gram in found and gram not in phrases for gram in target.grams]
        covered = _covered(shared, target.size)
        share = sum(covered) / len(covered)
        if any(shared) and share >= min_share:
            yield Overlap(target.benchmark, target.id, row.id, share, _longest_run(target.words, covered))


def _covered(shared: Sequence[bool], size: int) -> list[bool]:
    """For each word whether it is in a shared n-gram."""
    covered, left = [], 0
    for place in range(len(shared) + size - 1):
        left = size if place < len(shared) and shared[place] else left - 1
        covered.append(left > 0)
    return covered


def _longest_run(content: Sequence[str], covered: Sequence[bool]) -> str:
    best, start = (0, 0), 0
    for place, is_shared in enumerate(covered):
        if not is_shared:
            start = place + 1
        best = max(best, (place + 1 - start, -start))
    run = content[-best[1] : -best[1] + best[0]]
    return " ".join(run[:_SHOWN]) + (" ..." if len(run) > _SHOWN else "")


def _without_drawings(text: str) -> str:
    """The text without the Asymptote code of its figures."""
    first, *others = text.split("[asy]")
    parts = (part.partition("[/asy]") for part in others)
    return first + " ".join(after if closed else inside for inside, closed, after in parts)
