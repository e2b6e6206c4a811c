"""Splits that depend on the problems alone, not on a seed, the order of the rows, the process or a library."""

from __future__ import annotations

import hashlib
import unicodedata


def problem_key(text: str) -> str:
    """A problem's place in every ranking: SHA-256 (hex) of its text, in which case and space do not count."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()
