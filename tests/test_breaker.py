"""When an endpoint is left alone, on a clock that the test turns."""

from __future__ import annotations

import pytest

from trl_mentor.breaker import LONGEST, Breaker


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def breaker(time: Time) -> Breaker:
    return Breaker(pause_after=3, pause_seconds=10.0, clock=time)


def fail(breaker: Breaker, times: int = 1, **options: bool) -> list[bool]:
    return [breaker.failed(breaker.admit(1.0), **options) for _ in range(times)]


def test_it_opens_after_so_many_failures_in_a_row(breaker):
    assert fail(breaker, 3) == [False, False, True]
    assert breaker.admit(1.0) is None
    assert breaker.seconds_left() == 10.0


def test_a_success_in_between_begins_the_count_anew(breaker):
    fail(breaker, 2)
    assert not breaker.succeeded(breaker.admit(1.0))
    assert fail(breaker, 2) == [False, False]
    assert breaker.admit(1.0) is not None


def test_a_failure_for_good_opens_at_once(breaker):
    assert fail(breaker, 1, for_good=True) == [True]
    assert breaker.admit(1.0) is None


def test_after_the_pause_exactly_one_probe_is_let_through(breaker, time):
    fail(breaker, 3)
    time.now += 9.9
    assert breaker.admit(1.0) is None
    time.now += 0.2
    assert breaker.admit(1.0) is not None
    assert breaker.probing
    assert breaker.admit(1.0) is None


def test_a_probe_that_succeeds_closes_it(breaker, time):
    fail(breaker, 3)
    time.now += 10.1
    assert breaker.succeeded(breaker.admit(1.0))
    assert not breaker.probing
    assert fail(breaker, 3) == [False, False, True]
    assert breaker.seconds_left() == 10.0


def test_the_pause_doubles_while_probes_fail_up_to_its_limit(breaker, time):
    fail(breaker, 3)
    pauses = []
    for _ in range(7):
        pauses.append(breaker.seconds_left())
        time.now += pauses[-1] + 0.1
        assert fail(breaker) == [False]
    assert pauses == pytest.approx([10.0, 20.0, 40.0, 80.0, 160.0, 160.0, 160.0])
    assert max(pauses) == LONGEST * 10.0


def test_a_probe_that_says_little_leaves_the_pause_as_long_as_it_was(breaker, time):
    fail(breaker, 3)
    time.now += 10.1
    assert fail(breaker, says_little=True) == [False]
    assert breaker.seconds_left() == pytest.approx(10.0)
    assert not breaker.probing


def test_calls_that_began_before_it_opened_neither_close_it_nor_prolong_the_pause(breaker, time):
    early, late = breaker.admit(1.0), breaker.admit(1.0)
    fail(breaker, 3)
    time.now += 5
    assert not breaker.succeeded(early)
    assert not breaker.failed(late)
    assert breaker.seconds_left() == 5.0


def test_failures_that_began_before_it_closed_do_not_open_it_again(breaker, time):
    stale = [breaker.admit(1.0) for _ in range(5)]
    fail(breaker, 3)
    time.now += 10.1
    breaker.succeeded(breaker.admit(1.0))
    assert [breaker.failed(ticket) for ticket in stale] == [False] * 5
    assert breaker.admit(1.0) is not None


def test_a_probe_that_is_never_heard_of_again_makes_room_for_another(breaker, time):
    fail(breaker, 3)
    time.now += 10.1
    lost = breaker.admit(60.0)
    time.now += 69
    assert breaker.admit(60.0) is None
    time.now += 2
    assert not breaker.probing
    assert breaker.admit(60.0) not in (None, lost)
    assert not breaker.succeeded(lost)
