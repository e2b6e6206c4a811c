"""A run cut into stretches of equally many generation batches, for curves over steps, tokens and seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl_mentor.counters import Booking, Counters


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some generation batches in a row."""

    step: int
    """Optimizer steps done at the last of them."""
    counters: Counters
    """What happened in them."""
    totals: Counters
    """What had happened in the run by their end."""


def stretches(bookings: Sequence[Booking], parts: int = 100) -> list[Stretch]:
    """At most `parts`; what was booked between two batches belongs to the later one, the rest to the last."""
    batches = sum(booking.counters.batches for booking in bookings)
    found: list[Stretch] = []
    counters, totals, seen, step = Counters(), Counters(), 0, 0
    for position, booking in enumerate(bookings):
        step = booking.step if booking.counters.batches or not seen else step
        counters, totals = counters + booking.counters, totals + booking.counters
        seen += booking.counters.batches
        last = position == len(bookings) - 1
        if last or (booking.counters.batches and seen * parts // batches > (seen - 1) * parts // batches):
            if last and not counters.batches and found:
                counters = found.pop().counters + counters
            found.append(Stretch(step, counters, totals))
            counters = Counters()
    return found
