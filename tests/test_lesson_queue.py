from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Callable

import pytest

from trl_mentor.lesson_queue import LessonQueue
from trl_mentor.records import Assignment, CollapsedGroup, Guidance, HintOrigin, Lesson, Prepared


def assignment(number: int, **example) -> Assignment:
    messages = [{"role": "user", "content": f"question {number}"}]
    group = CollapsedGroup(question=f"question {number}", attempts=(), prompt=messages, index=number)
    return Assignment(group=group, example={"prompt": messages, "answer": number, **example}, collapsed_at=number)


def write(groups):
    guidance = Guidance(hint="a hint", origin=HintOrigin.ACCEPTED)
    return [Lesson(prompt=f"hint + {group.question}", hint="a hint", guidance=guidance) for group in groups]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen within 30 s"
        time.sleep(0.005)


def finished(queue: LessonQueue, count: int) -> list[Prepared]:
    found: list[Prepared] = []

    def collect() -> bool:
        if (item := queue.next_finished()) is not None:
            found.append(item)
        return len(found) == count

    until(collect)
    return found


def numbers(prepared: list[Prepared]) -> list[int]:
    return [item.assignment.group.index for item in prepared]


def test_a_group_handed_over_comes_back_with_its_lesson_and_its_row():
    queue = LessonQueue(write, size=8)
    assert queue.hand_over([assignment(3)]) == []
    (item,) = finished(queue, 1)
    assert (item.lesson.prompt, item.lesson.hint) == ("hint + question 3", "a hint")
    assert item.assignment == assignment(3)
    assert queue.next_finished() is None


def test_handing_over_and_asking_do_not_wait_for_a_mentor_that_hangs():
    gate = threading.Event()

    def hang(groups):
        gate.wait(60)
        return write(groups)

    queue = LessonQueue(hang, size=8, workers=2)
    before = time.monotonic()
    queue.hand_over([assignment(i) for i in range(4)])
    assert queue.next_finished() is None
    assert time.monotonic() - before < 10
    gate.set()
    assert sorted(numbers(finished(queue, 4))) == [0, 1, 2, 3]


def test_no_more_groups_are_worked_on_at_once_than_there_are_workers():
    running, most, lock = 0, 0, threading.Lock()

    def count(groups):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return write(groups)

    queue = LessonQueue(count, size=32, workers=3)
    for start in range(0, 12, 4):
        queue.hand_over([assignment(i) for i in range(start, start + 4)])
    finished(queue, 12)
    assert 1 <= most <= 3


def test_a_mentor_slower_than_collapse_still_finishes_lessons():
    gate = threading.Semaphore(0)

    def slow(groups):
        gate.acquire(timeout=60)
        return write(groups)

    queue = LessonQueue(slow, size=3, workers=1)
    dropped = []
    for start in range(0, 12, 2):  # the worker is busy with group 0 all the while
        dropped += numbers(queue.hand_over([assignment(start), assignment(start + 1)]))
    assert 0 not in dropped
    assert len(dropped) == 9
    gate.release()
    assert numbers(finished(queue, 1)) == [0]


def test_a_full_queue_drops_the_oldest_and_says_so():
    queue = LessonQueue(write, size=2)
    dropped = queue.hand_over([assignment(i) for i in range(5)])
    assert numbers(dropped) == [1, 2, 3]  # the one worker is at work on group 0
    assert all(item.lesson.prompt is None for item in dropped)
    assert dropped[0].lesson.guidance.origin is HintOrigin.DROPPED
    assert "mentor_queue_size" in dropped[0].lesson.guidance.reason
    assert numbers(finished(queue, 2)) == [0, 4]


def test_a_lesson_that_is_written_is_never_dropped():
    queue = LessonQueue(write, size=1)
    queue.hand_over([assignment(0)])
    until(lambda: queue.state()[0]["lesson"])
    assert numbers(queue.hand_over([assignment(1), assignment(2)])) == [2]
    assert numbers(finished(queue, 2)) == [0, 1]


@pytest.mark.parametrize(
    "broken", [lambda groups: 1 / 0, lambda groups: [], lambda groups: [None], lambda groups: None]
)
def test_whatever_goes_wrong_in_the_background_becomes_a_lesson_without_a_prompt(broken):
    queue = LessonQueue(broken, size=2)
    queue.hand_over([assignment(0)])
    (item,) = finished(queue, 1)
    assert item.lesson.prompt is None
    assert item.lesson.guidance.reason
    queue.hand_over([assignment(1)])
    assert numbers(finished(queue, 1)) == [1]


def test_a_paused_queue_begins_nothing_until_the_next_group_comes():
    asked: list[str] = []
    gate = threading.Event()

    def slow(groups):
        asked.append(groups[0].question)
        gate.wait(60)
        return write(groups)

    queue = LessonQueue(slow, size=8, workers=1)
    queue.hand_over([assignment(0), assignment(1)])
    until(lambda: asked)
    queue.pause()
    gate.set()
    finished(queue, 1)
    time.sleep(0.05)
    assert asked == ["question 0"]
    queue.hand_over([assignment(2)])
    assert numbers(finished(queue, 2)) == [1, 2]


def test_written_and_unwritten_lessons_survive_as_json():
    gate = threading.Event()

    def first_only(groups):
        if groups[0].index:
            gate.wait(60)
        return write(groups)

    queue = LessonQueue(first_only, size=8, workers=1)
    queue.hand_over([assignment(0), assignment(1), assignment(2)])
    until(lambda: queue.state()[0]["lesson"])
    saved = json.loads(json.dumps(queue.state()))
    gate.set()

    later = LessonQueue(write, size=8, workers=1)
    later.restore(saved)
    later.go_on()
    items = finished(later, 3)
    assert [item.assignment for item in items] == [assignment(i) for i in range(3)]
    assert items[0].lesson == write([assignment(0).group])[0]


def test_a_row_that_json_cannot_hold_is_left_out_of_the_checkpoint_with_a_warning(caplog):
    queue = LessonQueue(write, size=8)
    queue.hand_over([assignment(0, day=datetime.date(2026, 1, 1)), assignment(1), assignment(2, gap=float("nan"))])
    kept = queue.state()
    assert [item["assignment"]["group"]["index"] for item in kept] == [1]
    queue.state()
    assert caplog.text.count("2 of 3 queued lessons are not kept") == 1


def test_a_checkpoint_of_nonsense_costs_its_lessons_and_nothing_else(caplog):
    queue = LessonQueue(write, size=8)
    good = {"assignment": json.loads(json.dumps({"group": None})), "lesson": None}
    queue.restore([{}, "text", None, good, {"assignment": 3, "lesson": 4}])
    assert len(queue) == 0
    assert caplog.text.count("cannot be read") == 5


def test_idle_workers_get_their_groups_before_any_is_dropped():
    queue = LessonQueue(write, size=2, workers=4)
    assert numbers(queue.hand_over([assignment(i) for i in range(4)])) == []
    assert sorted(numbers(finished(queue, 4))) == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_is_ended_costs_its_group_and_no_other():
    def leave(groups):
        if groups[0].index == 0:
            raise SystemExit
        return write(groups)

    queue = LessonQueue(leave, size=8, workers=1)
    queue.hand_over([assignment(0)])
    (item,) = finished(queue, 1)
    assert "was ended" in item.lesson.guidance.reason
    queue.hand_over([assignment(1), assignment(2)])
    assert numbers(finished(queue, 2)) == [1, 2]


def test_threads_that_hang_from_an_earlier_run_hold_no_place_in_the_next():
    gate = threading.Event()

    def first_hangs(groups):
        if groups[0].index == 0:
            gate.wait(60)
        return write(groups)

    queue = LessonQueue(first_hangs, size=8, workers=1)
    queue.hand_over([assignment(0)])
    queue.restore([])
    queue.hand_over([assignment(1)])
    assert numbers(finished(queue, 1)) == [1]
    gate.set()
    assert queue.next_finished() is None


def test_groups_of_another_strategy_are_queued_without_their_lessons():
    queue = LessonQueue(write, size=8)
    queue.hand_over([assignment(0)])
    until(lambda: queue.state()[0]["lesson"])
    other = LessonQueue(lambda groups: [Lesson(prompt="of the other")], size=8)
    other.restore(queue.state(), with_lessons=False)
    other.go_on()
    (item,) = finished(other, 1)
    assert item.lesson.prompt == "of the other"


@pytest.mark.parametrize("saved", [None, 5, "text", {}])
def test_a_checkpoint_without_a_list_of_lessons_queues_none(saved):
    queue = LessonQueue(write, size=8)
    queue.restore(saved)
    assert len(queue) == 0
