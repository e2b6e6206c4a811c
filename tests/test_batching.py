"""Concurrent calls become batches: a collector over a function that notes what it was given."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from trl_mentor.backends.batching import Collector
from trl_mentor.errors import BackendError


class Doubler:
    """Doubles numbers; holds each batch until `go` is set, and raises what it finds among its work."""

    def __init__(self):
        self.batches = []
        self.go = threading.Event()
        self.began = threading.Event()

    def __call__(self, works):
        self.batches.append(list(works))
        self.began.set()
        assert self.go.wait(20)
        for index, work in enumerate(works):
            if isinstance(work, BaseException):
                raise work
            yield index, work if isinstance(work, BackendError) else 2 * work


@pytest.fixture
def doubler():
    return Doubler()


def hold(collector, doubler, pool):
    """A request that is being worked on until the doubler may go."""
    held = pool.submit(collector.ask, 1, timeout=20)
    assert doubler.began.wait(20)
    return held


def submit(collector, works, pool, timeout=20):
    """Requests that wait in the order of `works`."""
    futures = []
    for count, work in enumerate(works, start=len(collector._waiting) + 1):
        futures.append(pool.submit(collector.ask, work, timeout=timeout))
        while len(collector._waiting) < count:
            time.sleep(0.001)
    return futures


def test_requests_that_wait_make_batches_in_their_order_and_each_gets_its_own_result(doubler):
    collector = Collector(doubler, size=4)
    with ThreadPoolExecutor(10) as pool:
        held = hold(collector, doubler, pool)
        futures = submit(collector, range(10, 16), pool)
        doubler.go.set()
        assert held.result() == 2
        assert [future.result() for future in futures] == [20, 22, 24, 26, 28, 30]
    assert doubler.batches == [[1], [10, 11, 12, 13], [14, 15]]


def test_a_request_that_never_began_is_taken_out_when_its_time_is_over(doubler):
    collector = Collector(doubler, size=4)
    with ThreadPoolExecutor(2) as pool:
        held = hold(collector, doubler, pool)
        with pytest.raises(BackendError, match="busy with other requests"):
            collector.ask(2, timeout=0.05)
        doubler.go.set()
        held.result()
    assert collector.ask(3, timeout=20) == 6
    assert doubler.batches == [[1], [3]]


def test_a_caller_leaves_at_its_time_though_the_work_goes_on(doubler):
    collector = Collector(doubler, size=4)
    with pytest.raises(BackendError, match="out of time"):
        collector.ask(1, timeout=0.1)
    doubler.go.set()
    assert collector.ask(2, timeout=20) == 4


def test_no_time_is_no_request(doubler):
    with pytest.raises(BackendError, match="out of time"):
        Collector(doubler, size=4).ask(1, timeout=0.0)
    assert doubler.batches == []


def test_an_exception_fails_those_of_its_batch_that_have_no_result_and_no_later_one(doubler):
    collector = Collector(doubler, size=3)
    with ThreadPoolExecutor(10) as pool:
        held = hold(collector, doubler, pool)
        futures = submit(collector, [1, ValueError("what"), 2, 3], pool)
        doubler.go.set()
        held.result()
        assert (futures[0].result(), futures[3].result()) == (2, 6)
        for future in futures[1:3]:
            with pytest.raises(BackendError, match="the local mentor failed: ValueError: what"):
                future.result()
        assert futures[1].exception() is not futures[2].exception()


def test_an_exception_that_is_yielded_belongs_to_one_request(doubler):
    doubler.go.set()
    collector = Collector(doubler, size=3)
    with pytest.raises(BackendError, match="too long"):
        collector.ask(BackendError("too long"), timeout=20)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_when_the_thread_is_ended_nobody_waits_and_the_next_request_gets_a_new_one(doubler):
    collector = Collector(doubler, size=1)
    with ThreadPoolExecutor(3) as pool:
        held = hold(collector, doubler, pool)
        futures = submit(collector, [SystemExit(), 5], pool)
        doubler.go.set()
        held.result()
        for future in futures:
            with pytest.raises(BackendError, match="thread of the local mentor ended"):
                future.result()
    wait_for_threads()
    assert collector.ask(6, timeout=20) == 12


def wait_for_threads():
    for thread in threading.enumerate():
        if thread.name == "mentor-batches":
            thread.join(20)
            assert not thread.is_alive()


def test_no_thread_is_left_when_there_is_nothing_to_do(doubler):
    doubler.go.set()
    Collector(doubler, size=4).ask(1, timeout=20)
    wait_for_threads()
