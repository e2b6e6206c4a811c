"""A headless Chromium for tests that look at a page as a person does."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import Browser, Playwright

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
REQUIRED = os.environ.get("TRL_MENTOR_REQUIRE_BROWSER") == "1"
"""Whether tests fail, rather than being skipped, where there is no browser."""

_FLAGS = (
    "--no-sandbox",  # a container's root has no other choice; the page is our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def launched(playwright: Playwright) -> Browser:
    """A browser; it is closed at the end of a `with` block."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=[*_FLAGS])
