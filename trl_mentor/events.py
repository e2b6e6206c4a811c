"""What happens to the mentor as a whole: said in the log at once, and kept for the journal."""

from __future__ import annotations

import logging
from collections import deque

from trl_mentor.records import Event, EventKind

logger = logging.getLogger(__name__)

_KEPT = 1_000


class Events:
    """Safe to use from several threads. Without a trainer that takes them, the newest thousand are kept."""

    def __init__(self) -> None:
        self._kept: deque[Event] = deque(maxlen=_KEPT)

    def add(self, kind: EventKind, text: str) -> None:
        """Log one line and keep the event."""
        logger.warning("trl-mentor: %s", text)  # also that all is well again: nobody sees what is logged as INFO
        self._kept.append(Event(kind, text))

    def take(self) -> list[Event]:
        """The events since the last time, oldest first."""
        taken: list[Event] = []
        while self._kept:
            taken.append(self._kept.popleft())
        return taken
