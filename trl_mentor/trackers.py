"""The newest interventions as a table in the trackers that can show one: wandb, trackio and TensorBoard.

Metrics reach every tracker through `Trainer.log`; others than these three get nothing more.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

import pandas as pd
from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback, TrackioCallback, WandbCallback

from trl_mentor.markdown import literal, table
from trl_mentor.mentor_pool import describe
from trl_mentor.packing import shorten
from trl_mentor.quoting import clean_text
from trl_mentor.records import Intervention
from trl_mentor.trial import verdict_path

TABLE = "mentor/interventions"
"""Name of the table in every tracker."""

MAX_TEXT = 400
"""Longest text of a cell, in characters; the middle of a longer one is left out."""

Cells = dict[str, int | str]

logger = logging.getLogger(__name__)


class Tables:
    """Sends tables to the trackers of one run, and survives whatever a tracker does then."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def send(self, callbacks: Iterable[TrainerCallback], records: Sequence[Intervention], *, step: int) -> None:
        """Log a row for each record, at an optimizer step, wherever one of the callbacks logs to.

        To be called on the main process, after the callbacks have set up what they log to. A tracker that fails is
        warned about once.
        """
        rows = [_cells(record) for record in records]
        for callback in callbacks if rows else ():
            for kind, send in _SENDERS.items():
                if not isinstance(callback, kind):
                    continue
                try:
                    send(callback, rows, step)
                except Exception as error:  # whatever a tracker raises, it does not end the run that it shows
                    self._warn(kind.__name__.removesuffix("Callback"), error)

    def _warn(self, tracker: str, error: Exception) -> None:
        if tracker not in self._failed:
            self._failed.add(tracker)
            logger.warning(
                "trl-mentor: %s did not take a table of interventions, training goes on without it: %s",
                tracker,
                describe(error),
            )


def _cells(record: Intervention) -> Cells:
    """One row of the table."""
    group, guidance = record.group, record.guidance
    rewards = [-math.inf if value is None else value for value in record.successes]
    texts = {
        "topic": group.topic or "",
        "question": group.question,
        "diagnosis": "; ".join(guidance.diagnosis) if guidance else "",
        "hint": guidance.hint or "" if guidance else "",
        "verdicts": verdict_path(guidance) if guidance else "",
        "attempt_before": group.attempts[0].text if group.attempts else "",
        "attempt_after": record.completions[rewards.index(max(rewards))] if rewards else "",
        "rewards_after": ", ".join("none" if value is None else f"{value:g}" for value in record.successes),
    }
    return {
        "step": record.step,
        "outcome": str(record.outcome),
        "arm": str(record.arm or ""),
        "cause": str(group.cause),
        **{name: clean_text(shorten(text, MAX_TEXT)) for name, text in texts.items()},
    }


def _to_wandb(callback: WandbCallback, rows: list[Cells], step: int) -> None:
    wandb: Any = import_module("wandb")
    if wandb.run is not None:
        _log_table(wandb, rows, step)


def _to_trackio(callback: TrackioCallback, rows: list[Cells], step: int) -> None:
    _log_table(import_module("trackio"), rows, step)


def _log_table(tracker: Any, rows: list[Cells], step: int) -> None:
    """Log to a module with wandb's interface; the global step is what it draws everything over."""
    tracker.log({TABLE: tracker.Table(dataframe=pd.DataFrame(rows)), "train/global_step": step})


def _to_tensorboard(callback: TensorBoardCallback, rows: list[Cells], step: int) -> None:
    if callback.tb_writer is not None:
        cells = [[literal(str(value)) for value in row.values()] for row in rows]
        callback.tb_writer.add_text(TABLE, table(list(rows[0]), cells), step)


_SENDERS: dict[type[TrainerCallback], Callable[[Any, list[Cells], int], None]] = {
    WandbCallback: _to_wandb,
    TrackioCallback: _to_trackio,
    TensorBoardCallback: _to_tensorboard,
}
