"""The journal: what is written comes back, and a killed run costs one record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from trl_mentor import read_journal
from trl_mentor.errors import ConfigError
from trl_mentor.journal import Journal, read_at
from trl_mentor.records import (
    Arm,
    Attempt,
    Call,
    Cause,
    CollapsedGroup,
    Draft,
    Evaluation,
    Event,
    EventKind,
    Guidance,
    HintOrigin,
    Intervention,
    Prompt,
    Quality,
    RerollOutcome,
    Role,
    Usage,
    Verdict,
    VerdictSource,
)


def intervention(step: int = 3, prompt: Prompt = "What is 2+2?", text: str = "It is 5.") -> Intervention:
    """An intervention in which every field of every record differs from its default."""
    drafts = (
        Draft("The answer is 4.", Role.GENERATION, 1, Verdict(Quality.LOW, "leaks", VerdictSource.RULES)),
        Draft("Count on your fingers.", Role.REPAIR, 1, Verdict(Quality.HIGH, "good", VerdictSource.JUDGE)),
        Draft("Never judged.", Role.REPAIR, 2),
    )
    usage = Usage(100, 7, 60, 3)
    calls = (
        Call(Role.ATTRIBUTION, 0.5, usage, thinking_chars=9, endpoint="http://a"),
        Call(Role.JUDGMENT, 2.0, error="refused"),
    )
    guidance = Guidance("Count.", HintOrigin.ACCEPTED, ("adds wrongly",), drafts, calls, 2.5, "first draft leaked")
    return Intervention(
        step=step,
        strategy="mentor",
        group=CollapsedGroup(
            "What is 2+2?",
            (Attempt(text, 0.0, True, "expected 4"), Attempt("6")),
            "4",
            prompt,
            5,
            Cause.FORMAT,
            "no answer was found",
        ),
        guidance=guidance,
        outcome=RerollOutcome.RESCUED,
        completions=("4", "5"),
        successes=(1.0, None),
        rewards={"correct": (1.0, None), "format": (0.5, 0.0)},
        reroll_tokens=12,
    )


def write(path: Path, *records: Intervention) -> Path:
    journal = Journal(path)
    for record in records:
        journal.append(record)
    journal.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mentor" / "journal.jsonl"


CHAT: Prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2+2?"}]


def test_records_come_back_equal_and_typed(path: Path) -> None:
    written = [
        intervention(),
        intervention(prompt=CHAT),
        replace(
            intervention(), guidance=None, outcome=RerollOutcome.SKIPPED, completions=(), successes=(), rewards={}
        ),
    ]
    records = read_journal(write(path, *written))
    assert records == written
    assert type(records[0].guidance.drafts[0].verdict.quality) is Quality
    assert type(records[0].group.attempts) is tuple


def test_the_output_dir_of_a_run_is_as_good_as_the_file(path: Path) -> None:
    write(path, intervention())
    assert read_journal(path.parent.parent) == read_journal(str(path)) == [intervention()]


@pytest.mark.parametrize("text", ["a\x00b\x1b[31m\u2028\n", "\ud800 lone \udc00", "\U0001d6fc 中文 é"], ids=ascii)
def test_any_text_a_model_emits_survives(path: Path, text: str) -> None:
    record = intervention(text=text)
    assert read_journal(write(path, record)) == [record]
    assert len(path.read_bytes().splitlines()) == 1


def begun(path: Path, step: int, *records: Intervention) -> Path:
    journal = Journal(path)
    journal.begin(step)
    journal.close()
    return write(path, *records)


def test_the_steps_that_a_resumed_run_repeats_count_once_as_it_did_them(path: Path) -> None:
    begun(path, 0, *(intervention(step, text="first") for step in (0, 1, 2, 2, 3)))
    begun(path, 2, *(intervention(step, text="second") for step in (2, 3, 4)))
    begun(path, 3, intervention(3, text="third"))
    records = read_journal(path)
    assert [(record.step, record.group.attempts[0].text) for record in records] == [
        (0, "first"), (1, "first"), (2, "second"), (3, "third"),
    ]  # fmt: skip
    assert (records.superseded, records.skipped_lines) == (5, 0)
    assert len(records.to_dataset()) == 4


def test_only_the_newest_run_in_a_place_counts(path: Path) -> None:
    write(path, intervention(7))
    begun(path, 0, intervention(0), intervention(9))
    begun(path, 0, intervention(5))
    records = read_journal(path)
    assert ([record.step for record in records], records.superseded) == ([5], 3)
    begun(path, 0)
    assert (list(read_journal(path)), read_journal(path).superseded) == ([], 4)


def test_superseded_records_are_returned_on_request_with_their_times(path: Path) -> None:
    begun(path, 0, intervention(0), intervention(1))
    begun(path, 1, intervention(1), intervention(2))
    records = read_journal(path, superseded=True)
    assert ([record.step for record in records], records.superseded) == ([0, 1, 1, 2], 0)
    counting = read_journal(path)
    assert counting.times == [records.times[0], *records.times[2:]]


def noted(path: Path, *events: Event) -> Path:
    journal = Journal(path)
    for event in events:
        journal.note(event)
    journal.close()
    return path


def test_events_come_back_typed_beside_the_interventions_and_out_of_the_table(path: Path) -> None:
    events = [Event(EventKind.PAUSED, "down\n\ud800", 2), Event(EventKind.RESUMED, "up again", 3)]
    write(noted(path, events[0]), intervention(2))
    records = read_journal(noted(path, events[1]))
    assert (list(records), records.events, records.skipped_lines) == ([intervention(2)], events, 0)
    assert type(records.events[0].kind) is EventKind
    assert len(records.times) == len(records.to_dataset()) == 1


def test_events_of_steps_that_a_resumed_run_repeats_count_once(path: Path) -> None:
    noted(begun(path, 0), *(Event(EventKind.PAUSED, "first", step) for step in (0, 1, 2)))
    noted(begun(path, 1), Event(EventKind.RESUMED, "second", 1))
    assert [(event.step, event.text) for event in read_journal(path).events] == [(0, "first"), (1, "second")]
    assert read_journal(path).superseded == 0
    assert len(read_journal(path, superseded=True).events) == 4


@pytest.mark.parametrize("event", [None, 1, {}, {"kind": "party", "text": "t", "step": 1}, {"kind": "paused"}])
def test_an_event_that_cannot_be_read_is_skipped_and_counted(path: Path, event: object) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({"schema": 1, "time": "t", "event": event}) + "\n")
    write(path, intervention(1))
    with pytest.warns(UserWarning, match="skipped 1"):
        records = read_journal(path)
    assert (len(records), records.events) == (1, [])


def test_a_torn_marker_is_skipped_and_takes_nothing_with_it(path: Path) -> None:
    begun(path, 0, intervention(0))
    path.write_bytes(begun(path, 0).read_bytes()[:-3])
    begun(path, 1, intervention(1))
    with pytest.warns(UserWarning, match="skipped 1 unreadable"):
        records = read_journal(path)
    assert ([record.step for record in records], records.superseded) == ([0, 1], 0)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_become_null(path: Path, number: float) -> None:
    write(path, replace(intervention(), successes=(number, 1.0)))
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert read_journal(path)[0].successes == (None, 1.0)


def test_message_contents_that_json_lacks_do_not_stop_a_run(path: Path) -> None:
    prompt: Prompt = [{"role": "user", "content": [{"type": "image", "image": Path("x.png")}, (1, {2: 3})]}]
    (record,) = read_journal(write(path, intervention(prompt=prompt)))
    assert record.group.prompt == [
        {"role": "user", "content": [{"type": "image", "image": "x.png"}, [1, {"2": 3}]]},
    ]


@pytest.mark.parametrize("cut", [1, 2, 40, 400])
def test_a_torn_last_line_costs_that_record_only(path: Path, cut: int) -> None:
    write(path, intervention(1), intervention(2))
    path.write_bytes(path.read_bytes()[:-cut])
    write(path, intervention(3), intervention(4))
    if cut == 1:  # only the newline is missing: the record is whole
        assert [record.step for record in read_journal(path)] == [1, 2, 3, 4]
        return
    with pytest.warns(UserWarning, match=r"skipped 1 unreadable line.*journal\.jsonl"):
        records = read_journal(path)
    assert [record.step for record in records] == [1, 3, 4]
    assert records.skipped_lines == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"schema": 1e999, "time": ""}',
        b"\x00\x00\x00\x00",
        b"\xff\xfe{}",
        b"[1]",
        b"{}",
        b'{"schema": 1, "time": "t", "step": 1}',
        b"[" * 100_000,
        b'{"schema": 1, "time": "t", "step": "one", "strategy": "s", "group": {"question": "q", "attempts": []}, '
        b'"guidance": null, "outcome": "rescued"}',
        b'{"schema": 1, "time": "t", "step": 1, "strategy": "s", "group": {"question": "q", "attempts": "abc"}, '
        b'"guidance": null, "outcome": "rescued"}',
        b'{"schema": 1, "time": "t", "step": 1, "strategy": "s", "group": {"question": "q", "attempts": []}, '
        b'"guidance": null, "outcome": "won"}',
        b'{"schema": 1, "time": "t", "train_begin": null}',
        b'{"schema": 1, "time": "t", "train_begin": "0"}',
    ],
)
def test_a_line_that_is_not_an_intervention_is_skipped_and_counted(path: Path, line: bytes) -> None:
    write(path, intervention(1))
    with path.open("ab") as file:
        file.write(line + b"\n\n")
    write(path, intervention(2))
    with pytest.warns(UserWarning, match="skipped 1"):
        records = read_journal(path)
    assert [record.step for record in records] == [1, 2]
    assert len(records.to_dataset()) == 2


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes) + "\n")


def test_fields_of_a_newer_version_are_ignored(path: Path) -> None:
    rewrite(write(path, intervention()), mood="good")
    assert read_journal(path) == [intervention()]


def test_a_newer_format_says_what_to_install(path: Path) -> None:
    rewrite(write(path, intervention()), schema=2)
    with pytest.raises(ConfigError, match=r"format 2.*newer trl-mentor"):
        read_journal(path)


def test_a_missing_journal_names_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"mentor/journal\.jsonl"):
        read_journal(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_journal(tmp_path / "nowhere")


def test_a_record_is_on_file_before_any_sync(path: Path) -> None:
    journal = Journal(path)
    journal.append(intervention())
    assert read_journal(path) == [intervention()]
    journal.close()


def test_a_full_disk_is_logged_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal("/dev/full")
    journal.append(intervention())
    journal.append(intervention())
    journal.close()
    assert journal.lost == 2
    assert [record.message for record in caplog.records if "lost a record" in record.message] == [
        "trl-mentor: the journal /dev/full lost a record, training goes on without it: "
        "[Errno 28] No space left on device"
    ]


def test_a_closed_journal_closes_again_in_peace_and_is_continued_by_the_next_record(path: Path) -> None:
    write(path, intervention(1))
    journal = Journal(path)
    journal.close()
    journal.close()
    journal.sync()
    journal.append(intervention(2))
    journal.close()
    assert [record.step for record in read_journal(path)] == [1, 2]


def test_two_writers_do_not_mix_their_lines(path: Path) -> None:
    first, second = Journal(path), Journal(path)
    for step in range(10):
        first.append(intervention(2 * step, text="a" * 100_000))
        second.append(intervention(2 * step + 1, text="b" * 100_000))
    first.close()
    second.close()
    assert [record.step for record in read_journal(path)] == list(range(20))


def test_a_table_takes_plain_and_chat_prompts_and_broken_unicode_together(path: Path) -> None:
    no_mentor = replace(intervention(3), guidance=None, rewards={"other": (1.0,)})
    table = read_journal(
        write(path, intervention(1), intervention(2, prompt=CHAT, text="\ud800"), no_mentor)
    ).to_dataset()
    assert table["prompt"][0] == "What is 2+2?"
    assert json.loads(table["prompt"][1]) == CHAT
    assert table["attempts"][1][0]["text"] == "?"
    assert table["outcome"][:] == ["rescued"] * 3
    assert table["origin"][:] == ["accepted", "accepted", None]
    assert table["mentor_prompt_tokens"][:] == [100, 100, 0]
    assert table["rewards"][2] == [{"name": "other", "values": [1.0]}]
    frame = table.to_pandas()
    assert list(frame.hint[:2]) == ["Count.", "Count."]
    assert all(time.endswith("+00:00") for time in frame.time)


def test_a_table_says_what_the_lot_gave_a_group_and_what_it_is_about(path: Path) -> None:
    written = intervention(3)
    group = replace(written.group, topic="sums")
    control = replace(written, group=group, arm=Arm.CONTROL, collapsed_at=1, reliances=(0.5, None))
    (row,) = read_journal(write(path, control)).to_dataset()
    assert (row["arm"], row["topic"], row["collapsed_at"], row["reliances"]) == ("control", "sums", 1, [0.5, None])


def test_an_empty_journal_is_an_empty_table_with_the_same_columns(path: Path) -> None:
    Journal(path).close()
    empty = read_journal(path)
    assert (list(empty), empty.skipped_lines) == ([], 0)
    table = empty.to_dataset()
    write(path, intervention())
    assert len(table) == 0
    assert table.features == read_journal(path).to_dataset().features


def test_a_reader_may_keep_less_of_each_record_and_read_the_whole_ones_where_they_lie(path: Path) -> None:
    begun(path, 0, intervention(1, text="first"), intervention(2, text="gone"))
    begun(path, 2, intervention(2, text="second"), intervention(3, text="third"))
    seen: dict[int, str] = {}

    def keep(record: Intervention, offset: int) -> Intervention:
        seen[offset] = record.group.attempts[0].text
        return replace(record, group=replace(record.group, attempts=()))

    records = read_journal(path, keep=keep)
    assert [record.group.attempts for record in records] == [(), (), ()]
    assert list(seen.values()) == ["first", "gone", "second", "third"]
    assert [record.group.attempts[0].text for record in read_at(path, records.offsets)] == ["first", "second", "third"]
    assert list(read_at(path, [0, 1])) == [None, None]


def test_an_evaluation_with_a_metric_that_is_no_number_keeps_the_others(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.begin(0)
    journal.evaluated(Evaluation(3, {"eval_reward": 0.5, "eval_rewards/form/mean": math.nan}))
    journal.close()
    assert read_journal(journal.path).evaluations == [Evaluation(3, {"eval_reward": 0.5})]
