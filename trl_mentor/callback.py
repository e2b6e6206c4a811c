"""The callback: a progress line, warnings to act on, the journal's upkeep, and counters in checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from trl_mentor.alarms import Alarms
from trl_mentor.causes import DEFAULT_ROUTES
from trl_mentor.closing import closing_text
from trl_mentor.counters import Counters
from trl_mentor.errors import ConfigError
from trl_mentor.lesson_queue import LessonQueue
from trl_mentor.records import Cause, Evaluation, Route
from trl_mentor.schedules import Ahead
from trl_mentor.strategies.mentor import mentor_of
from trl_mentor.tallies import Tallies
from trl_mentor.trackers import Tables
from trl_mentor.uplift import difference_text, uplift

if TYPE_CHECKING:
    from trl_mentor.grpo_trainer import MentorGRPOTrainer

logger = logging.getLogger(__name__)

_PATIENCE = 3.0
"""Seconds for which the end of training waits for calls to the mentor that are under way, to know what they cost."""


class MentorCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Observes a `MentorGRPOTrainer` and persists what it counts; it never intervenes.

    The trainer adds one by itself. It prints one line per log event on the main process, warns (through `logging`)
    when something needs a person, keeps the journal on disk, and keeps the run's totals in `trainer_state.json`, so
    that a resumed run goes on counting where its checkpoint stood. A `train()` that resumes nothing is a new run.
    """

    def __init__(self, *, progress: bool = True) -> None:
        """`progress=False` leaves out the progress lines and the bill at the end."""
        self._progress = progress
        self._trainer: MentorGRPOTrainer | None = None
        self._logged_at = time.monotonic()
        self._alarms = Alarms()
        self._before_step: tuple[int, dict[str, Any]] = (-1, {})
        self._tables = Tables()

    def bind(self, trainer: MentorGRPOTrainer) -> None:
        """Called by the trainer whose totals and journal this callback looks after."""
        self._trainer = trainer

    def state(self) -> dict[str, Any]:
        """Totals and queued lessons of the run as plain JSON, in the form that `ExportableState` asks for.

        In the middle of a step, which a resumed run does again, they are those from before the step.
        """
        if self._trainer is None:
            return {"args": {"progress": self._progress}, "attributes": {}}
        if self.is_in_step(self._trainer.state.global_step):
            return self._before_step[1]
        queue = self._queue()
        attributes = self._trainer.books.state() | {
            "lessons": [] if queue is None else queue.state(),
            "strategy": self._trainer.strategy.name,
        }
        return {"args": {"progress": self._progress}, "attributes": attributes}

    def is_in_step(self, step: int) -> bool:
        """Whether so many steps are done and the next is under way, as far as checkpoints on SIGTERM need to know."""
        return self._before_step[0] == step

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take over totals and lessons of the checkpoint, or start from none, and mark in the journal at which step.

        Raises `ConfigError` when not bound.
        """
        trainer = self._bound()
        hints = mentor_of(trainer.strategy) is not None
        construction = getattr(trainer.strategy, "construction", None) if hints else None
        self._alarms = Alarms(trainer.cause_routes, construction)
        self._before_step = (-1, {})
        saved = state.stateful_callbacks.get(type(self).__name__)
        attributes = _attributes(saved) if saved and state.global_step > 0 else {}
        self._restore_lessons(attributes, is_main=state.is_world_process_zero)
        trainer.books.begin(attributes, step=state.global_step, run=trainer.run_info())
        if (queue := self._queue()) is not None:
            queue.go_on()  # what its calls cost comes on top
        # A checkpoint of a run without this callback has no entry, and transformers needs one to save the next.
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        if state.is_world_process_zero and (warning := trainer.dosage().warning()):
            logger.warning("trl-mentor: %s", warning)
        self._logged_at = time.monotonic()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep what a checkpoint on SIGTERM, which may come in the middle of the step, is to hold."""
        if getattr(args, "enable_jit_checkpoint", False):  # since transformers 5
            self._before_step = (state.global_step, self.state())

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Print what happened since the last line, show it, and warn; logs of evaluations are no end of a window."""
        books, now = self._bound().books, time.monotonic()
        window = books.window
        if window.batches == 0 or not ends_window(logs or {}):
            return
        if state.is_world_process_zero:
            if self._progress:
                routes, recovery = self._bound().cause_routes, books.totals.recovery
                line = progress_line(state.global_step, window, now - self._logged_at, routes, recovery=recovery)
                tqdm.write(line)
            if books.mentor_resumed:
                books.mentor_resumed = False
                self._alarms.forget_failures()
                window = replace(window, failed=0)
            with tqdm.external_write_mode():  # a line of its own, not the end of the progress bar
                for warning in self._alarms.check(window, failure=books.last_failure, details=books.newest_causes):
                    logger.warning("trl-mentor: %s%s", warning, self._where_to_look())
                self._send_table(step=state.global_step)
        self._logged_at = now

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write into the journal what the evaluation measured."""
        journal = self._bound().journal
        if journal is not None:
            numbers = {name: float(value) for name, value in (metrics or {}).items() if isinstance(value, int | float)}
            journal.evaluated(Evaluation(state.global_step, numbers))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Bring the journal to disk together with the checkpoint."""
        journal = self._bound().journal
        if journal is not None:
            journal.sync()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the books and the journal, and print the bill; a further `train()` begins anew."""
        trainer = self._bound()
        trainer.close_books(patience=_PATIENCE)
        if self._progress and state.is_world_process_zero and trainer.mentor_totals.batches:
            tqdm.write(closing_text(trainer.mentor_totals, priced=trainer.books.priced))

    def _bound(self) -> MentorGRPOTrainer:
        if self._trainer is None:
            raise ConfigError(
                "MentorCallback belongs to no MentorGRPOTrainer, which binds the ones in callbacks=[...] when it is "
                "made and adds one by itself: do not give it to another trainer, and do not add it later"
            )
        return self._trainer

    def _restore_lessons(self, attributes: Mapping[str, Any], *, is_main: bool) -> None:
        """Take over what was queued; under another strategy its groups, which then get lessons of that one."""
        lessons = attributes.get("lessons", []) if is_main else []
        queue = self._queue()
        if queue is not None:
            queue.restore(lessons, with_lessons=attributes.get("strategy") == self._bound().strategy.name)
        elif lessons:
            logger.warning(
                "trl-mentor: "
                "the checkpoint holds %d lessons that were written ahead; this run is inline and leaves them.",
                len(lessons),
            )

    def _queue(self) -> LessonQueue | None:
        schedule = None if self._trainer is None else self._trainer.schedule
        return schedule.queue if isinstance(schedule, Ahead) else None

    def _send_table(self, *, step: int) -> None:
        trainer = self._bound()
        newest = list(trainer.books.newest_interventions)
        trainer.books.newest_interventions.clear()
        self._tables.send(trainer.callback_handler.callbacks, newest, step=step)

    def _where_to_look(self) -> str:
        journal = self._bound().journal
        return "" if journal is None else f" Journal: {journal.path}"


def ends_window(logs: Mapping[str, Any]) -> bool:
    """Whether these logs are of training, where each covers what happened since the last."""
    return not {"loss", "train_loss"}.isdisjoint(logs)


_SKIPPED = {
    Cause.CUT_OFF: "cut off",
    Cause.DUPLICATES: "all the same",
    Cause.FORMAT: "of wrong form",
    Cause.UNSCORABLE: "not scored",
    Cause.VERIFIER_ERROR: "not judged",
}


def progress_line(
    step: int,
    window: Counters,
    seconds: float,
    routes: Mapping[Cause, Route] = DEFAULT_ROUTES,
    *,
    recovery: Tallies = Tallies(),
) -> str:
    """One line on what happened in a window of `seconds` of wall-clock time.

    `routes` say which causes are skipped, `recovery` is that of the whole run: a window has too few groups for it.
    """
    share = min(window.mentor_seconds / seconds, 1.0) if seconds > 0 else 0.0
    outcomes = {
        "rescued": window.rescued,
        "saturated": window.hint_saturated,
        "still collapsed": window.still_collapsed,
        **_skipped(window, routes),
        "handed over": window.handed_over,
    }
    parts = [f"{window.collapsed} of {window.groups} groups collapsed"]
    parts += [f"{count} {name}" for name, count in outcomes.items() if count]
    inline = window.calls and not window.handed_over
    waited = f"; waited {share:.0%} of the time for the mentor" if inline else ""
    comparison = uplift(recovery)
    helped = "" if comparison is None else f"; uplift so far {difference_text(comparison)}"
    empty = f"; {window.skipped_steps} steps left out" if window.skipped_steps else ""
    return f"step {step}: {', '.join(parts)}{empty}{waited}{helped}"


def _skipped(window: Counters, routes: Mapping[Cause, Route]) -> dict[str, int]:
    """The groups that were not re-rolled, by the reason."""
    causes = {
        name: getattr(window, f"cause_{cause}") - window.held_back_causes[cause].groups
        for cause, name in _SKIPPED.items()
        if routes[cause] is Route.SKIP
    }
    others = {
        "not asked": window.not_asked - window.held_back - sum(causes.values()),
        "failed by the mentor": window.failed,
        "dropped": window.dropped,
        "skipped": window.skipped,
    }
    left, parts = window.skipped, {}
    for name, count in {"held back": window.held_back, **causes, **others}.items():
        parts[name] = max(min(count, left), 0)
        left -= parts[name]
    return parts


def _attributes(saved: Any) -> dict[str, Any]:
    """What `state` saved, from an entry of `TrainerState.stateful_callbacks`."""
    # transformers keeps a list, newest last, when a run had several callbacks of one class.
    entry = saved[-1] if isinstance(saved, list) and saved else saved
    attributes = entry.get("attributes") if isinstance(entry, dict) else None
    return attributes if isinstance(attributes, dict) else {}
