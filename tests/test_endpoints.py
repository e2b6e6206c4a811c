"""Several backends asked as one: who is asked, who stands in, who is left alone, and what is said about it."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest

from trl_mentor import Mentor
from trl_mentor.backends.base import Backend
from trl_mentor.backends.scripted import ScriptedBackend
from trl_mentor.endpoints import Endpoints
from trl_mentor.errors import AccessDeniedError, BackendError, ConfigError, EndpointPausedError, RequestRefusedError
from trl_mentor.events import Events
from trl_mentor.records import Attempt, CollapsedGroup, EventKind, HintOrigin, Reply, Role

ASK = [{"role": "user", "content": "Is it good?"}]


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Moody:
    """A backend that raises `error` while it has one, and answers with its name otherwise."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.endpoint, self.error, self.asked = name, error, 0

    def chat(self, messages, *, role, timeout, schema=None):
        self.asked += 1
        self.before(timeout)
        if self.error is not None:
            raise self.error
        return Reply(self.endpoint)

    def before(self, timeout):
        pass


DOWN = BackendError("connection refused")


def ask(endpoints, timeout=60.0):
    return endpoints.chat(ASK, role=Role.JUDGMENT, timeout=timeout)


def failures(endpoints, times, timeout=60.0):
    found = []
    for _ in range(times):
        with pytest.raises(BackendError) as caught:
            ask(endpoints, timeout)
        found.append(type(caught.value))
    return found


def test_they_are_a_backend_and_one_that_works_is_passed_through():
    one = Moody("a")
    assert isinstance(Endpoints([one]), Backend)
    assert ask(Endpoints([one])) == Reply("a")


def test_a_failing_endpoint_is_asked_no_more_and_the_error_says_when_it_will_be():
    one = Moody("http://a/v1", DOWN)
    endpoints = Endpoints([one], pause_after=3, pause_seconds=30.0, clock=Time())
    assert failures(endpoints, 5) == [BackendError] * 3 + [EndpointPausedError] * 2
    assert one.asked == 3
    with pytest.raises(EndpointPausedError, match=r"http://a/v1 .* tried again in 30 s.*connection refused"):
        ask(endpoints)


def test_opening_and_closing_are_a_log_line_and_an_event_each_and_a_probe_that_fails_is_a_log_line(caplog):
    caplog.set_level(logging.INFO)
    time, events, one = Time(), Events(), Moody("http://a/v1", DOWN)
    endpoints = Endpoints([one], pause_after=2, pause_seconds=30.0, events=events, clock=time)
    failures(endpoints, 4)
    time.now = 31
    failures(endpoints, 2)  # the probe fails
    one.error, time.now = None, 100
    ask(endpoints)
    ask(endpoints)
    opened, closed = events.take()
    assert (opened.kind, closed.kind) == (EventKind.PAUSED, EventKind.RESUMED)
    assert "the mentor at http://a/v1 is left alone for 30 s" in opened.text
    assert "connection refused" in opened.text
    assert closed.text == "the mentor at http://a/v1 works again after 100 s"
    first, again, last = [(record.levelname, record.message) for record in caplog.records]
    assert (first, last) == (("WARNING", f"trl-mentor: {opened.text}"), ("WARNING", f"trl-mentor: {closed.text}"))
    assert again[0] == "WARNING"
    assert "still does not work after 31 s and is left alone for 60 s more: BackendError: connection" in again[1]
    assert events.take() == []


@pytest.mark.parametrize("error", [BackendError("x"), ValueError("of a backend of one's own"), TimeoutError()])
def test_every_other_exception_is_a_failure_and_keeps_its_type(error):
    endpoints = Endpoints([Moody("a", error)], pause_after=2)
    with pytest.raises(type(error)):
        ask(endpoints)
    with pytest.raises(type(error)):
        ask(endpoints)
    with pytest.raises(EndpointPausedError):
        ask(endpoints)


def test_requests_that_are_refused_one_by_one_pause_nothing_and_go_to_no_other_endpoint():
    one, other = Moody("a", RequestRefusedError("too long")), Moody("b")
    assert failures(Endpoints([one, other], pause_after=2), 6) == [RequestRefusedError] * 6
    assert other.asked == 0


def test_a_refused_key_pauses_at_once():
    one = Moody("a", AccessDeniedError("HTTP 401; check the variable MENTOR_KEY"))
    endpoints, events = Endpoints([one], pause_after=5), None
    events = endpoints._events
    assert failures(endpoints, 3) == [AccessDeniedError, EndpointPausedError, EndpointPausedError]
    (opened,) = events.take()
    assert "MENTOR_KEY" in opened.text


def test_a_failed_call_goes_to_another_endpoint_and_the_reply_says_which():
    one, other = Moody("http://a/v1", DOWN), Moody("http://b/v1")
    endpoints = Endpoints([one, other], pause_after=2)
    replies = [ask(endpoints) for _ in range(4)]
    assert [(reply.text, reply.endpoint) for reply in replies] == [("http://b/v1", "http://b/v1")] * 4
    assert [reply.requests for reply in replies] == [2, 2, 1, 1]  # those that failed at the other one count
    assert one.asked == 2
    (opened,) = endpoints._events.take()
    assert "the other endpoints stand in" in opened.text


def test_when_all_fail_the_error_names_the_last_and_when_all_are_paused_nobody_is_asked():
    backends = [Moody("a", DOWN), Moody("b", BackendError("HTTP 500"))]
    endpoints = Endpoints(backends, pause_after=1)
    with pytest.raises(BackendError, match="HTTP 500") as caught:
        ask(endpoints)
    assert caught.value.endpoint == "b"
    assert failures(endpoints, 2) == [EndpointPausedError] * 2
    assert [backend.asked for backend in backends] == [1, 1]


def test_failover_stays_within_the_timeout_of_the_call():
    time = Time()

    class Slow(Moody):
        def before(self, timeout):
            self.given = timeout
            time.now += 40

    one, other, third = Slow("a", DOWN), Slow("b", DOWN), Slow("c", DOWN)
    failures(Endpoints([one, other, third], clock=time), 1, timeout=60.0)
    assert (one.given, other.given, third.asked) == (30.0, 10.0, 0)


class Gate(Moody):
    """Holds its callers until it is opened."""

    def __init__(self, name, error=None):
        super().__init__(name, error)
        self.gate, self.inside = threading.Event(), threading.Semaphore(0)

    def before(self, timeout):
        self.inside.release()
        assert self.gate.wait(10)


def test_calls_go_to_the_endpoint_with_the_fewest_in_flight():
    backends = [Gate("a"), Gate("b"), Gate("c")]
    endpoints = Endpoints(backends)
    with ThreadPoolExecutor(7) as pool:
        calls = []
        for number in range(7):
            calls.append(pool.submit(ask, endpoints))
            assert backends[number % 3].inside.acquire(timeout=10)
        for backend in backends:
            backend.gate.set()
        assert sorted(call.result().text for call in calls) == list("aaabbcc")


@pytest.mark.parametrize("error", [None, DOWN])
def test_calls_wait_for_what_comes_of_a_probe_instead_of_being_turned_away(error):
    time, one = Time(), Gate("a", DOWN)
    one.gate.set()
    endpoints = Endpoints([one], pause_after=1, pause_seconds=5.0, clock=time)
    failures(endpoints, 1)
    time.now = 6
    one.gate.clear()
    one.inside = threading.Semaphore(0)
    with ThreadPoolExecutor(4) as pool:
        probe = pool.submit(ask, endpoints)
        assert one.inside.acquire(timeout=10)
        others = [pool.submit(ask, endpoints) for _ in range(3)]
        assert not one.inside.acquire(timeout=0.1)
        one.error = error
        one.gate.set()
        found = [call.exception(timeout=10) for call in [probe, *others]]
    assert [type(item) for item in found] == (
        [type(None)] * 4 if error is None else [BackendError, *[EndpointPausedError] * 3]
    )
    assert one.asked == (5 if error is None else 2)


def test_running_out_of_too_little_time_says_nothing_about_an_endpoint():
    time = Time()

    class Late(Moody):
        def before(self, timeout):
            time.now += timeout

    endpoints = Endpoints([Late("a", DOWN)], pause_after=2, patience=30.0, clock=time)
    assert failures(endpoints, 4, timeout=29.0) == [BackendError] * 4
    assert failures(endpoints, 3, timeout=31.0) == [BackendError, BackendError, EndpointPausedError]


@pytest.mark.parametrize(("left", "pause"), [(2.0, 30.0), (31.0, 60.0)])
def test_a_probe_that_had_too_little_time_keeps_the_endpoint_paused_but_not_for_longer(left, pause):
    time, one = Time(), Moody("a", DOWN)
    one.before = lambda timeout: setattr(time, "now", time.now + timeout)
    endpoints = Endpoints([one], pause_after=1, pause_seconds=30.0, patience=30.0, clock=time)
    failures(endpoints, 1)
    time.now += 31
    assert failures(endpoints, 2, timeout=left) == [BackendError, EndpointPausedError]
    with pytest.raises(EndpointPausedError, match=f"tried again in {pause:g} s"):
        ask(endpoints)


def test_an_endpoint_that_hangs_leaves_half_of_the_time_for_another_and_counts_as_failing():
    time, hangs, works = Time(), Moody("hangs", DOWN), Moody("works")
    given = []
    hangs.before = lambda timeout: (given.append(timeout), setattr(time, "now", time.now + timeout))
    works.before = given.append
    endpoints = Endpoints([hangs, works], pause_after=2, pause_seconds=30.0, patience=30.0, clock=time)
    assert ask(endpoints, timeout=60.0).text == "works"
    assert given == [30.0, 30.0]
    assert ask(endpoints, timeout=59.9).text == "works"
    assert ask(endpoints, timeout=60.0).text == "works"
    assert given[-1:] == [60.0]
    assert hangs.asked == 2


def test_the_identity_is_that_of_the_backends_or_none_if_one_has_none():
    a, b, c = Moody("a"), Moody("b"), Moody("c")
    a.identity = b.identity = "model m"
    assert Endpoints([a]).identity == Endpoints([a, b]).identity == "model m"
    b.identity = "model n"
    assert Endpoints([a, b]).identity == Endpoints([b, a]).identity != Endpoints([b]).identity
    assert Endpoints([a, c]).identity is None
    assert Endpoints([ScriptedBackend({})]).identity is None


def test_endpoints_of_one_name_are_told_apart():
    endpoints = Endpoints([ScriptedBackend(lambda role, messages: "x"), ScriptedBackend({})])
    assert ask(endpoints).endpoint == "ScriptedBackend (1)"


def test_a_mentor_whose_endpoint_never_answers_in_time_costs_one_batch_its_time_and_not_each():
    class Slow(Moody):
        def before(self, timeout):
            sleep(timeout)

    slow = Slow("a", DOWN)
    mentor = Mentor(slow, call_timeout=0.2, deadline=30.0, pause_after=2, pause_seconds=60.0)
    group = CollapsedGroup("What is 2+2?", (Attempt("5"),), "4")
    assert {guidance.origin for guidance in mentor.guide([group] * 4)} == {HintOrigin.FAILED}
    asked = slow.asked
    guidances = mentor.guide([group] * 4)
    assert {guidance.origin for guidance in guidances} == {HintOrigin.NOT_ASKED}
    assert all("mentoring is paused" in guidance.reason for guidance in guidances)
    assert slow.asked == asked
    assert [event.kind for event in mentor.take_events()] == [EventKind.PAUSED]


def test_a_mentor_takes_several_backends_and_refuses_what_is_none():
    one, other = Moody("a", DOWN), Moody("b")
    mentor = Mentor([one, other], max_retry=1)
    mentor.guide([CollapsedGroup("What is 2+2?", (Attempt("5"),), "4")])
    assert (one.asked > 0, other.asked > 0) == (True, True)
    for wrong in ([], [one, "http://b/v1"], "http://b/v1"):
        with pytest.raises(ConfigError, match="backend"):
            Mentor(wrong)
