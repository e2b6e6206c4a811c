r"""Whether a hint is plain text that tries to help: no markup of chats and tools, no JSON, no refusal of the mentor's.

What comes from a model that speaks in another format than its server expects would else be shown to the student.
"""

from __future__ import annotations

import re

from trl_mentor.quoting import NAMED_SQUARE_TOKENS, NAMED_TOKENS, THINKING_NAMES

_OPENS, _CLOSES = "<\u2039\uff1c\ufe64\u25c1", ">\u203a\uff1e\ufe65\u25b7"
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_MARKUP = re.compile(
    rf"[{_CONTROL}]"
    rf"|[{_OPENS}](?:[|\uff5c][^|\uff5c<>\n]{{1,40}}[|\uff5c][{_CLOSES}]|{NAMED_TOKENS})"
    rf"|[{_OPENS}]/?{THINKING_NAMES}(?:\s[^<>\n]{{0,80}})?[{_CLOSES}]"
    rf"|\[{NAMED_SQUARE_TOKENS}"
    r"|(?:^|\n)[ \t]{0,8}[*_#]{0,3}(?:user|human|assistant)[*_]{0,2}:"
    r"|^\s{0,8}\{\s{0,8}[\"'][^\"'\n]{1,40}[\"']\s{0,8}:|\{\s{0,8}[\"'](?:hint|critique|verdict|draft)[\"']\s{0,8}:",
    re.IGNORECASE,
)
_NOT = (
    r"(?:cannot|can't|can not|won't|will not|am unable to|'m unable to|am not able to|'m not able to|must decline to)"
)
_REFUSAL = re.compile(
    r"\W{0,8}(?:(?:unfortunately|apologies|sorry|but)\W{1,3}){0,2}"
    r"(?:(?:i'm|i am|we're|we are)\s(?:(?:very|so|really|truly)\s)?(?:sorry|afraid)\b"
    r"|(?:i|we) apologi[sz]e\b|my apologies\b|as an ai\b"
    rf"|(?:i|we)\s?{_NOT}\s(?:\w{{1,12}}\s)?(?:help|assist|comply|fulfil|continue|answer|respond|engage)\b"
    rf"|(?:i|we)\s?{_NOT}\s(?:\w{{1,12}}\s)?(?:give|provide|offer|write|generate|create)\s(?:\w{{1,12}}\s){{0,2}}"
    r"(?:hints?|help|assistance|that|this)\b)",
    re.IGNORECASE,
)


def is_plain(text: str) -> bool:
    """Whether the text holds no control character, no token of a chat format, no labelled turns and no JSON."""
    return _MARKUP.search(text) is None


def declines(text: str) -> bool:
    """Whether the text begins with an excuse for not helping."""
    return _REFUSAL.match(text.replace("\u2019", "'")) is not None
