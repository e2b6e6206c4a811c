"""The books of a run: what it counts, remembers and writes down.

Totals and memory are over all ranks and equal on each. What the mentor took, the groups of the trial and the journal
are the main process's alone.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trl_mentor.counters import Booking, Counters
from trl_mentor.errors import ConfigError
from trl_mentor.journal import Journal
from trl_mentor.mentor import Mentor
from trl_mentor.plain import from_plain, plain_json
from trl_mentor.probe import Candidate, Prober
from trl_mentor.records import Cause, EventKind, HintOrigin, Intervention, Return, RunInfo
from trl_mentor.spending import Spending
from trl_mentor.tallies import Tallies
from trl_mentor.transfer import Memory, Past, question_key
from trl_mentor.trial import Trial
from trl_mentor.unhinted_echo import UnhintedEchoes
from trl_mentor.uplift import uplift

logger = logging.getLogger(__name__)


class Books:
    """Kept by the trainer; the callback has them begun, put into checkpoints and closed."""

    def __init__(
        self, *, mentor: Mentor | None, journal: Journal | None, trial: Trial, prober: Prober, table_rows: int
    ) -> None:
        """`journal` is None on all ranks but the main process; `table_rows` interventions are kept for trackers."""
        self.totals = Counters()
        """What happened since the run began; a resumed run continues it."""
        self.logged = Counters()
        """The totals at the last log of training."""
        self.memory = Memory()
        """The prompts that collapsed, until they come round again."""
        self.echoes = UnhintedEchoes()
        """The newest hints, which completions of plain questions should not quote."""
        self.prober = prober
        """Which of them are asked in between, and when."""
        self.trial = trial
        """Which hints are withheld."""
        self.journal = journal
        self.last_failure = ""
        """Why the newest hint that was not accepted failed or fell back; empty before the first."""
        self.mentor_resumed = False
        """Whether an endpoint that was left alone has come to work again since the last log."""
        self.newest_causes: dict[Cause, str] = {}
        """What showed the newest collapse of each cause; on the main process alone."""
        self.newest_interventions: deque[Intervention] = deque(maxlen=table_rows)
        """Those since the last log, without those about which nobody was asked; on the main process alone."""
        self._mentor = mentor
        self._booked_at, self._open = time.monotonic(), False

    @property
    def priced(self) -> bool:
        """Whether it is known what the mentor's tokens cost."""
        return self._mentor is not None and self._mentor.budget.priced

    @property
    def window(self) -> Counters:
        """What happened since the last log of training."""
        return self.totals - self.logged

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run takes over, as plain JSON."""
        return {
            "totals": plain_json(self.totals),
            "memory": self.memory.state(),
            "probes": self.prober.state(),
            "hints": self.echoes.state(),
            "trial": plain_json(self.trial),
        }

    def begin(self, saved: Mapping[str, Any], *, step: int, run: RunInfo) -> None:
        """Begin training with `step` optimizer steps done, from what `state` returned; a new run without it.

        Names of another version are ignored. Raises `ConfigError` for a value that cannot be read.
        """
        try:
            totals: Counters = from_plain(Counters, saved.get("totals") or {})
            self.memory.restore(saved.get("memory", []))
            self.prober.restore(saved.get("probes", {}))
            self.echoes.restore(saved.get("hints", []))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                "the checkpoint's MentorCallback entry, under stateful_callbacks in trainer_state.json, cannot be "
                f"read ({type(error).__name__}: {error}); resume with the version of trl-mentor that saved it, or "
                "take the entry out to go on with new totals"
            ) from error
        if self.journal is None:
            totals = replace(totals, mentor=Spending(), recovery=Tallies())
        self.totals = self.logged = totals
        self.last_failure, self.mentor_resumed = "", False
        self.newest_interventions.clear()
        self._warn_if_trial_changed(saved.get("trial"))
        if self._mentor is not None:
            self._mentor.resume_spending(self.totals.mentor)
            self._mentor.ledger.take()
        if self.journal is not None:
            carried_over = self.totals != Counters() and not self.journal.has_bookings()
            self.journal.begin(step, run)
            if carried_over:  # from a run that was kept elsewhere, or by a version that booked nothing
                self.journal.book(Booking(max(step - 1, 0), self.totals))
        self._booked_at, self._open = time.monotonic(), True

    def book(self, counters: Counters, *, step: int) -> Counters:
        """Add counters to the totals and to the journal, with the time and the calls of the mentor since the last."""
        now = time.monotonic()
        counters += Counters(seconds=now - self._booked_at)
        self._booked_at = now
        if self._mentor is not None and self.journal is not None:
            counters += Counters(mentor=self._mentor.ledger.take())
        self.totals += counters
        if self.journal is not None:
            self.journal.book(Booking(step, counters))
        return counters

    def record(self, interventions: Sequence[Intervention], details: Mapping[Cause, str]) -> None:
        """Write interventions down, and keep for the next log what they show."""
        for intervention in interventions:
            if self.journal is not None:
                self.journal.append(intervention)
            guidance = intervention.guidance
            if guidance is None or guidance.origin is not HintOrigin.NOT_ASKED:
                self.newest_interventions.append(intervention)
            if guidance is not None and guidance.origin in (HintOrigin.FALLBACK, HintOrigin.FAILED):
                self.last_failure = guidance.reason
        self.newest_causes.update(details)

    def remember(self, example: Mapping[str, Any], answer: str | None, past: Past) -> None:
        """Keep how the intervention for a data set row ended, until it comes round again."""
        key = question_key(example["prompt"], answer)
        self.memory.remember(key, past)
        self.prober.keep(Candidate(key, past, example))

    def recall(self, key: str) -> Past | None:
        """How the last intervention for a prompt that has come round ended, once; it is not probed any more."""
        past = self.memory.recall(key)
        if past is not None:
            self.prober.forget(key)
        return past

    def note_returns(self, found: Sequence[Return]) -> None:
        """Write down how prompts were answered that collapsed before."""
        if self.journal is not None:
            for item in found:
                self.journal.returned(item)

    def write_events(self, *, step: int) -> None:
        """Write down what happened to the mentor as a whole since the last time."""
        if self.journal is not None and self._mentor is not None:
            for event in self._mentor.take_events():
                self.mentor_resumed |= event.kind is EventKind.RESUMED
                self.journal.note(replace(event, step=step))

    def close(self, *, step: int, patience: float = 0.0) -> None:
        """Book the rest of a run. What the mentor is asked now is waited for so many seconds.

        Its endpoint bills these calls, whose replies nobody needs. Closing twice is fine.
        """
        if not self._open:
            return
        self._open, waited = False, time.monotonic()
        if self._mentor is not None and (left := self._mentor.ledger.settle(patience)):
            logger.warning(
                "trl-mentor: %d calls to the mentor were under way when training ended; their tokens are not in the "
                "bill",
                left,
            )
        # Later than every checkpoint, so that no run that is resumed from one counts it as its own.
        self.book(Counters(mentor_seconds=time.monotonic() - waited), step=step)
        self.write_events(step=max(step - 1, 0))
        if self.journal is not None:
            self.journal.close()

    def _warn_if_trial_changed(self, saved: Any) -> None:
        """Say so when the arms of a resumed run are shared out in another way than those that its totals count."""
        before = from_plain(Trial, saved or {})
        now = self.trial
        if uplift(self.totals.recovery) is not None and (before.control, before.generic) != (now.control, now.generic):
            logger.warning(
                "trl-mentor: "
                "the checkpoint withheld %g of the hints and replaced %g, this run %g and %g. The arms of the totals "
                "now differ in when their groups collapsed, so that mentor/total/uplift mixes what hints did with "
                "what was learnt in between. Keep the fractions, or use the windows alone.",
                before.control,
                before.generic,
                now.control,
                now.generic,
            )
