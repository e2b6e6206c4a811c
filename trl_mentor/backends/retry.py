"""When a failed request to an endpoint is worth another try, and after how long."""

from __future__ import annotations

import math
import random
import time
from email.utils import parsedate_to_datetime

from trl_mentor.backends.failures import Failure

_RETRIED_STATUSES = frozenset({408, 409, 429})

_jitter = random.Random()
"""A generator of its own: the global one belongs to the training run."""


def retry_delay(failure: Failure, attempt: int) -> float | None:
    """Seconds to wait before the next try; None if trying again cannot help."""
    status = failure.status or 0
    if not (failure.lost or status in _RETRIED_STATUSES or (status >= 500 and status != 501)):  # "not implemented"
        return None
    wished = _parse_retry_after(failure.retry_after)
    delay = min(0.5 * 2**attempt, 8.0) if wished is None else wished
    return delay * (1 + 0.25 * _jitter.random())


def _parse_retry_after(value: str | None) -> float | None:
    """Seconds that a `Retry-After` header asks for, as a number or as a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return seconds if 0 <= seconds < math.inf else None
