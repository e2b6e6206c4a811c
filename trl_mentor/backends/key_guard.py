"""The key of an endpoint, kept out of replies, errors and logs: an endpoint may say it back."""

from __future__ import annotations

import logging
import re
import weakref
from contextlib import suppress

from trl_mentor.backends.endpoint import PLACEHOLDER_KEY

_SHORTEST = 8
"""What is shorter is no secret but the "none" of a local server, and may be a part of ordinary words."""

_LOGGERS = ("aiohttp.client", "aiohttp.internal", "asyncio")


def _written(char: str) -> str:
    """A pattern of all ways to write an ASCII character in JSON."""
    plain = re.escape(char)
    return rf"(?:{plain}|\\{{1,16}}+(?:{plain}|u00{ord(char):02x}))"


class KeyGuard(logging.Filter):
    """Takes a key out of texts, in upper or lower case: names of hosts are shown in the latter.

    Also where characters of it are escaped as in JSON, however deep: whoever reads the JSON would find it again.
    """

    def __init__(self, key: str) -> None:
        super().__init__()
        secret = key != PLACEHOLDER_KEY and len(key) >= _SHORTEST
        self._key = re.compile("".join(map(_written, key)), re.IGNORECASE) if secret else None

    def hide(self, text: str) -> str:
        return text if self._key is None else self._key.sub("[key]", text)

    def guard_logs(self, owner: object) -> None:
        """Take the key out of what the HTTP client logs, cookies that it cannot read for one, while `owner` lives."""
        for logger in map(logging.getLogger, _LOGGERS):
            logger.addFilter(self)
            weakref.finalize(owner, logger.removeFilter, self)

    def filter(self, record: logging.LogRecord) -> bool:
        with suppress(TypeError, ValueError, KeyError):  # what cannot be formatted, logging reports itself
            text = record.getMessage()
            if (hidden := self.hide(text)) != text:
                record.msg, record.args = hidden, None
        return True
