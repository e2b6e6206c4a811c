"""A run cut into stretches for the curves of its report."""

from __future__ import annotations

from trl_mentor.counters import Booking, Counters
from trl_mentor.report.stretches import stretches


def batch(step, **counted):
    return Booking(step, Counters(batches=1, seconds=1.0, **counted))


def test_what_is_booked_after_the_last_batch_belongs_to_it_and_to_no_later_step():
    found = stretches([batch(0, groups=4), batch(1, groups=4), Booking(2, Counters(seconds=0.5))])
    assert [(item.step, item.counters.groups, item.counters.seconds) for item in found] == [(0, 4, 1.0), (1, 4, 1.5)]
    assert found[-1].totals == Counters(batches=2, groups=8, seconds=2.5)


def test_many_batches_make_at_most_so_many_stretches_that_add_up_to_the_run():
    found = stretches([batch(step, collapsed=step % 3) for step in range(250)], parts=100)
    assert len(found) == 100
    assert sum((item.counters for item in found), Counters()) == found[-1].totals
    assert (found[-1].step, found[-1].totals.batches) == (249, 250)


def test_a_run_without_a_batch_is_one_stretch_and_without_bookings_none():
    assert [item.step for item in stretches([Booking(0, Counters(seconds=1.0))])] == [0]
    assert stretches([]) == []
