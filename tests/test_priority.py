"""The order in which collapsed groups are mentored when there is not enough for all."""

from __future__ import annotations

import itertools
import random
import threading
from dataclasses import replace

import pytest
import said

from trl_mentor.backends.scripted import ScriptedBackend
from trl_mentor.mentor import Mentor
from trl_mentor.priority import most_promising_first
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin, Reply, Role
from trl_mentor.templating import read_blocks

GOOD = {
    Role.ATTRIBUTION: said.diagnosis("counts 1 as prime"),
    Role.GENERATION: "Which whole numbers have exactly two divisors?",
    Role.JUDGMENT: said.verdict("HIGH"),
}


def group(*texts, question="q", rewards=(0.0,), cut_off=0):
    """A group of these attempts, of which the first `cut_off` ran into the length limit."""
    attempts = [
        Attempt(text, reward, truncated=number < cut_off)
        for number, (text, reward) in enumerate(zip(texts, itertools.cycle(rewards), strict=False))
    ]
    return CollapsedGroup(question, tuple(attempts))


def order(*groups, attempt_budget=12_000):
    return most_promising_first(groups, attempt_budget=attempt_budget)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (group("aa", "bb", cut_off=1), group("aa", "bb")),
        (group("aa", "bb"), group("aa", "bb", rewards=(0.0, -1.0))),
        (group("aa", "aa"), group("aa", "bb")),
        (group("aa", "bb"), group("aa", "b")),
        (group("aa", "bb", question="a longer question"), group("aa", "bb")),
        (group("aa", "bb", rewards=(0.0, -1.0), cut_off=1), group("aa", "aa")),
        (group("aa", "aa", rewards=(0.0, None)), group("a", "a")),
        (CollapsedGroup("", ()), group("a long attempt")),
    ],
    ids=[
        "cut off",
        "partial credit",
        "all the same",
        "longer attempts",
        "longer question",
        "being whole counts more than partial credit",
        "what was not scored is no partial credit",
        "no attempts",
    ],
)
def test_the_more_promising_of_two_groups_comes_first(less, more):
    assert order(less, more) == [1, 0]
    assert order(more, less) == [0, 1]


def test_groups_that_are_alike_keep_their_order():
    assert order(*[group("aa", "bb")] * 5) == [0, 1, 2, 3, 4]


def test_beyond_what_the_mentor_reads_length_makes_no_difference():
    assert order(group("a" * 5_000), group("a" * 500), attempt_budget=100) == [0, 1]


def test_the_order_depends_on_the_groups_alone():
    groups = [group("aa", "b" * n, cut_off=n % 3, rewards=(0.0, -(n % 2))) for n in range(12)]
    shuffled = list(range(12))
    random.Random(5).shuffle(shuffled)
    assert [shuffled[index] for index in order(*[groups[index] for index in shuffled])] == order(*groups)


THREE = [
    group("24", "24", question="the same twice"),
    group("24", "...", question="cut off", cut_off=1),
    group("24", "26", question="promising"),
]


def asked_about(backend):
    return [
        read_blocks(request.messages[-1]["content"], "question")[0]
        for request in backend.requests
        if request.role is Role.ATTRIBUTION
    ]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_with_a_budget_for_one_of_three_groups_the_most_promising_gets_the_hint(concurrency):
    backend = ScriptedBackend(GOOD)
    guidances = Mentor(backend, budget={"batch_calls": 3}, max_concurrency=concurrency).guide(THREE)
    assert [guidance.origin for guidance in guidances] == [
        HintOrigin.NOT_ASKED,
        HintOrigin.NOT_ASKED,
        HintOrigin.ACCEPTED,
    ]
    assert asked_about(backend) == ["promising"]


def test_with_time_for_one_of_three_groups_it_is_the_most_promising():
    release = threading.Event()

    def script(role, messages):
        if "promising" not in read_blocks(messages[-1]["content"], "question"):
            release.wait(10)
        return Reply(GOOD[role])

    guidances = Mentor(ScriptedBackend(script), deadline=0.5, max_concurrency=1).guide(THREE)
    release.set()
    assert [guidance.hint is not None for guidance in guidances] == [False, False, True]


def test_with_enough_for_all_the_guidances_come_in_the_order_of_the_groups():
    backend = ScriptedBackend(GOOD)
    groups = [replace(item, question=f"{item.question} {number}") for number, item in enumerate(THREE * 3)]
    guidances = Mentor(backend, max_concurrency=1).guide(groups)
    assert [guidance.origin for guidance in guidances] == [HintOrigin.ACCEPTED] * 9
    numbers = [int(question.split()[-1]) for question in asked_about(backend)]
    assert numbers == [2, 5, 8, 0, 3, 6, 1, 4, 7]


def test_a_group_that_is_not_what_it_should_be_leaves_the_order_of_the_batch():
    backend = ScriptedBackend(GOOD)
    broken = CollapsedGroup(None, (Attempt(None),))
    guidances = Mentor(backend, max_concurrency=1).guide([THREE[1], broken, THREE[2]])
    assert asked_about(backend) == ["cut off", "promising"]
    assert guidances[1].origin is HintOrigin.FAILED
