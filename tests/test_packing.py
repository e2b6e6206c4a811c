"""What the mentor reads of the failed attempts."""

from __future__ import annotations

import random
import re

import pytest

from trl_mentor.errors import ConfigError
from trl_mentor.packing import MAX_FEEDBACK_CHARS, MIN_BUDGET, check_budget, pack_attempts, pack_feedback
from trl_mentor.records import Attempt


def words(size: int, seed: int) -> str:
    generator = random.Random(seed)
    return "".join(generator.choice("abcdefghij") for _ in range(size))


def random_attempts(generator: random.Random) -> list[Attempt]:
    pool = [words(generator.choice([0, 1, 30, 300, 3_000, 30_000]), seed) for seed in range(6)]
    count = generator.randint(1, 16)
    return [Attempt(generator.choice(pool), truncated=generator.random() < 0.3) for _ in range(count)]


def test_attempts_that_fit_are_given_whole_and_shortest_first():
    texts = ["a long and winding attempt", "short", "a middling one"]
    assert pack_attempts([Attempt(text) for text in texts], 1000) == ["short", "a middling one", texts[0]]


def test_attempts_that_just_fit_are_all_whole_even_when_there_are_many():
    texts = [f"attempt number {number:03d}" + "." * 32 for number in range(20)]
    assert pack_attempts([Attempt(text) for text in texts], 20 * 50) == texts


@pytest.mark.parametrize("seed", range(300))
def test_the_budget_is_never_exceeded_and_every_shown_attempt_shows_some_of_its_text(seed: int):
    generator = random.Random(seed)
    attempts = random_attempts(generator)
    budget = generator.choice([MIN_BUDGET, MIN_BUDGET + 1, 799, 1_000, 5_000, 100_000])
    packed = pack_attempts(attempts, budget)
    assert packed
    assert sum(map(len, packed)) <= budget
    known = [attempt.text or "[empty completion]" for attempt in attempts]
    assert all(any(text.startswith(original[:80]) for original in known) for text in packed)


@pytest.mark.parametrize("seed", range(50))
def test_the_same_attempts_are_packed_the_same_way_and_never_reordered_by_their_place_in_the_group(seed: int):
    attempts = [Attempt(words(size, size)) for size in range(100, 1_700, 100)]
    shuffled = random.Random(seed).sample(attempts, len(attempts))
    assert pack_attempts(shuffled, 6_000) == pack_attempts(attempts, 6_000)


def test_identical_attempts_are_shown_once_with_their_number():
    packed = pack_attempts([Attempt("x = 3"), Attempt("x = 4"), Attempt("x = 3 \n"), Attempt("x = 3")], 1000)
    assert packed == ["x = 4", "x = 3\n[3 attempts were the same, word for word]"]


def test_an_attempt_that_was_cut_off_is_not_merged_with_one_that_ended_there():
    packed = pack_attempts([Attempt("so x", truncated=True), Attempt("so x")], 1000)
    assert packed == ["so x", "so x\n[cut off here: this attempt ran into the length limit]"]


def test_a_long_attempt_keeps_head_and_tail_and_says_how_many_characters_are_missing():
    text = "HEAD" + words(10_000, 1) + "TAIL"
    [packed] = pack_attempts([Attempt(text)], 1_000)
    head, omitted, tail = re.split(r"\n\[\.\.\. (\d+) characters left out \.\.\.\]\n", packed)
    assert text.startswith(head)
    assert head.startswith("HEAD")
    assert text.endswith(tail)
    assert tail.endswith("TAIL")
    assert len(head) + int(omitted) + len(tail) == len(text)
    assert len(packed) > 990


def test_a_long_attempt_that_was_cut_off_says_so_at_its_end():
    [packed] = pack_attempts([Attempt(words(10_000, 1), truncated=True)], 1_000)
    assert packed.endswith("[cut off here: this attempt ran into the length limit]")
    assert len(packed) <= 1_000


def test_short_attempts_stay_whole_beside_a_very_long_one():
    attempts = [Attempt(words(50_000, 1)), Attempt(words(900, 2)), Attempt(words(800, 3))]
    packed = pack_attempts(attempts, 2_200)
    assert packed[:2] == [attempts[2].text, attempts[1].text]
    assert "characters left out" in packed[2]
    assert len(packed[2]) >= MIN_BUDGET


def test_long_attempts_share_what_is_left_evenly():
    packed = pack_attempts([Attempt(words(10_000, seed)) for seed in range(4)], 4_000)
    assert [len(text) // 10 for text in packed] == pytest.approx([100] * 4, abs=1)


def test_attempts_for_which_there_is_no_room_are_counted():
    packed = pack_attempts([Attempt(words(10_000 + seed, seed)) for seed in range(8)], 1_000)
    assert len(packed) == 2
    assert packed[-1].endswith("[not shown: longer attempts, 6 of them]")


def test_an_empty_attempt_is_named_as_such():
    assert pack_attempts([Attempt("  \n")], 1000) == ["[empty completion]"]


def test_no_attempts_make_no_texts():
    assert pack_attempts([], 1000) == []


@pytest.mark.parametrize("budget", [MIN_BUDGET - 1, 0, -5])
def test_a_budget_too_small_for_one_attempt_is_refused(budget: int):
    with pytest.raises(ConfigError, match=f"is {budget} characters; expected at least {MIN_BUDGET}"):
        check_budget(budget)
    with pytest.raises(ConfigError):
        pack_attempts([Attempt("x")], budget)


def test_the_smallest_allowed_budget_is_accepted():
    check_budget(MIN_BUDGET)


def test_feedback_comes_in_the_order_of_the_packed_attempts_once_for_those_that_are_the_same():
    attempts = [
        Attempt("a long attempt", feedback=" test 1 failed\n"),
        Attempt("short"),
        Attempt("short", feedback="raised KeyError"),
        Attempt("middling", feedback=""),
    ]
    assert [text.partition("\n")[0] for text in pack_attempts(attempts, 1000)] == [
        "middling",
        "a long attempt",
        "short",
    ]
    assert pack_feedback(attempts, 1000) == ["", "test 1 failed", "raised KeyError"]


def test_feedback_is_bounded_and_there_is_as_much_of_it_as_there_are_shown_attempts():
    attempts = [Attempt(f"{number} " * 5_000, feedback="x" * 100_000) for number in range(9)]
    feedback = pack_feedback(attempts, 1_000)
    assert len(feedback) == len(pack_attempts(attempts, 1_000)) < 9
    assert 900 < max(map(len, feedback)) <= MAX_FEEDBACK_CHARS
