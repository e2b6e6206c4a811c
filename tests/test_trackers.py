"""What a run leaves in real trackers, offline: TensorBoard's event files and trackio's database, read back."""

from __future__ import annotations

import contextlib
import html
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import tiny
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback

from trl_mentor import read_journal
from trl_mentor.errors import ConfigError
from trl_mentor.markdown import literal
from trl_mentor.trackers import MAX_TEXT

COLUMNS = [
    "step", "outcome", "arm", "cause", "topic", "question", "diagnosis", "hint", "verdicts", "attempt_before",
    "attempt_after", "rewards_after",
]  # fmt: skip


def events(output_dir: Path) -> EventAccumulator:
    (folder,) = (output_dir / "runs").iterdir()
    return EventAccumulator(str(folder)).Reload()


def tables(found: EventAccumulator) -> dict[int, list[list[str]]]:
    """The cells of each logged table by step, its head left out."""
    if "mentor/interventions/text_summary" not in found.Tags()["tensors"]:
        return {}
    return {event.step: cells(text_of(event)) for event in found.Tensors("mentor/interventions/text_summary")}


def text_of(event: Any) -> str:
    return event.tensor_proto.string_val[0].decode()


def cells(text: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
    assert lines[0] == COLUMNS
    return lines[2:]


def test_tensorboard_holds_the_scalars_and_a_table_for_each_log(tmp_path):
    tiny.trained(tmp_path, max_steps=4, logging_steps=2, report_to=["tensorboard"], mentor_control_fraction=0.5)
    found = events(tmp_path)
    scalars = {tag for tag in found.Tags()["scalars"] if tag.startswith("train/mentor/")}
    assert {"train/mentor/frac_collapsed", "train/mentor/total/uplift", "train/mentor/total/uplift_low"} <= scalars
    assert [event.step for event in found.Scalars("train/mentor/frac_collapsed")] == [2, 4]
    shown = tables(found)
    records = read_journal(tmp_path)
    assert sorted(shown) == [2, 4]
    assert [row[0] for row in shown[2] + shown[4]] == [str(record.step) for record in records]
    arms = [row[2] for row in shown[2] + shown[4]]
    assert arms == [str(record.arm) for record in records]
    first, record = dict(zip(COLUMNS, shown[2][0], strict=True)), records[0]
    assert first["question"] == record.group.question == "w1 w1"
    assert first["hint"] == record.guidance.hint
    assert (first["diagnosis"], first["verdicts"]) == ("confuses w1 with w2", "first&#95;draft")
    assert first["attempt_before"] == literal(record.group.attempts[0].text)
    assert first["attempt_after"] == literal(record.completions[0])  # the first that succeeds
    assert first["rewards_after"] == "1, 0, 1, 0"


def test_every_metric_of_mentoring_is_a_finite_number(tmp_path):
    trainer = tiny.trained(tmp_path, max_steps=2, mentor_control_fraction=0.5)
    logged = [logs for logs in trainer.state.log_history if "loss" in logs]
    values = [value for logs in logged for name, value in logs.items() if name.startswith("mentor/")]
    assert len(values) > 60
    assert all(isinstance(value, float) and math.isfinite(value) for value in values)


def test_a_log_shows_the_newest_interventions_and_no_more_than_were_asked_for(tmp_path):
    tiny.trained(tmp_path, max_steps=4, logging_steps=4, report_to=["tensorboard"], mentor_table_rows=3)
    assert [row[0] for row in tables(events(tmp_path))[4]] == ["2", "3", "3"]


def test_no_rows_are_no_table(tmp_path):
    tiny.trained(tmp_path, report_to=["tensorboard"], mentor_table_rows=0)
    assert tables(events(tmp_path)) == {}
    with pytest.raises(ConfigError, match="mentor_table_rows must be a whole number of at least 0, got -1"):
        tiny.config(tmp_path, mentor_table_rows=-1)


def as_tensorboard_shows(text: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the copy of bleach inside TensorBoard
        from tensorboard.plugin_util import markdown_to_safe_html
    return markdown_to_safe_html(text)


HOSTILE = "<script>alert(1)</script> | ![x](http://evil/x.png)\r\n\n# *w* `c` [a](javascript:b) $x$ \x00 &lt; \\|"
SHOWN = "<script>alert(1)</script> | ![x](http://evil/x.png)<br><br># *w* `c` [a](javascript:b) $x$ \ufffd &lt; \\|"


def test_hostile_text_stays_in_its_cell_and_is_shown_as_text(tmp_path):
    prompts = ["w" * 999 if i == 3 else f"w{i}" for i in range(8)]
    data = tiny.dataset().remove_columns("prompt").add_column("prompt", prompts).add_column("topic", [HOSTILE] * 8)
    tiny.trained(tmp_path, data=data, report_to=["tensorboard"])
    (event,) = events(tmp_path).Tensors("mentor/interventions/text_summary")
    rows = cells(text_of(event))
    assert [len(row) for row in rows] == [len(COLUMNS)] * 2
    shown = as_tensorboard_shows(text_of(event))
    assert f"<td>{SHOWN}</td>" in html.unescape(shown)
    assert not re.search(r"<(?!/?(table|thead|tbody|tr|th|td|br)>)", shown)
    long = rows[1][COLUMNS.index("question")]
    assert "characters left out" in long
    assert len(html.unescape(long)) <= MAX_TEXT + 2 * len("<br>")


class BreaksTheBoard(TrainerCallback):
    """Takes away what TensorBoard's writer logs text with, as another version of it might."""

    def on_train_begin(self, args, state, control, **kwargs):
        (board,) = (item for item in self.trainer.callback_handler.callbacks if isinstance(item, TensorBoardCallback))
        board.tb_writer.add_text = None


def test_a_tracker_that_fails_does_not_end_training_and_is_warned_about_once(tmp_path, caplog):
    trainer, breaks = tiny.trainer(tmp_path, max_steps=3, report_to=["tensorboard"]), BreaksTheBoard()
    breaks.trainer = trainer
    trainer.add_callback(breaks)
    trainer.train()
    assert trainer.state.global_step == 3
    (warning,) = [record.message for record in caplog.records if "table of interventions" in record.message]
    assert warning.startswith("trl-mentor: TensorBoard did not take a table of interventions, training goes on")
    assert [event.step for event in events(tmp_path).Scalars("train/mentor/frac_collapsed")] == [1, 2, 3]


OFFLINE_RUN = """
import socket, sys, tiny
connect, asked = socket.socket.connect, []
def noting(sock, address):
    asked.append(address)
    return connect(sock, address)
socket.socket.connect = noting
options = {"project": "lessons", "run_name": "one", "mentor_control_fraction": 0.5}
tiny.trained(sys.argv[1], max_steps=2, report_to=["trackio"], **options)
print("connections:", asked)
"""


def test_trackio_holds_the_scalars_and_the_tables_and_asks_no_network(tmp_path):
    folder = tmp_path / "trackio"
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE_RUN, str(tmp_path / "run")],
        cwd=Path(tiny.__file__).parent,
        env={**os.environ, "TRACKIO_DIR": str(folder), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "connections: []" in done.stdout
    assert "did not take a table" not in done.stderr
    with contextlib.closing(sqlite3.connect(folder / "lessons.db")) as database:
        logs = [json.loads(text) for (text,) in database.execute("SELECT metrics FROM metrics ORDER BY step")]
    scalars = [log for log in logs if "train/mentor/frac_collapsed" in log]
    assert [log["train/global_step"] for log in scalars] == [1, 2]
    assert all({"train/mentor/calls", "train/mentor/total/recovery_hint"} <= log.keys() for log in scalars)
    tables = [log for log in logs if "mentor/interventions" in log]
    assert [log["train/global_step"] for log in tables] == [1, 2]
    rows = [row for log in tables for row in log["mentor/interventions"]["_value"]]
    records = read_journal(tmp_path / "run")
    assert [(row["step"], row["question"], row["attempt_before"]) for row in rows] == [
        (record.step, record.group.question, record.group.attempts[0].text) for record in records
    ]
