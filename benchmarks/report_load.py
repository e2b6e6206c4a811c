"""How long the report of 20,000 interventions takes to make, and to open in headless Chromium.

    python benchmarks/report_load.py                # writes benchmarks/results/report_load.json

Opening is measured in the page, from the start of the navigation to the list with its filters ready, to the first
intervention shown, and to the end of the file; and then one search through every text. Needs Debian's chromium, or
another one at $CHROMIUM, and the packages of the extra `test`.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import journals  # noqa: E402
from browser import launched  # noqa: E402

INTERVENTIONS = 20_000
LOADS = 5
RESULT = ROOT / "benchmarks" / "results" / "report_load.json"

WATCH = """
    window.seen = {};
    const seen = (name, there) => {
        const look = () => { if (there()) window.seen[name] = performance.now(); else requestAnimationFrame(look); };
        look();
    };
    seen("list", () => document.documentElement?.dataset.ready && document.querySelector("#rows li"));
    seen("detail", () => document.querySelector("#detail h3"));
    seen("file", () => document.readyState === "complete");
"""


def make(folder: Path) -> dict[str, float]:
    """Make the page in a process of its own."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "trl_mentor.cli.main", "report", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),
        "journal_mb": round((folder / "mentor" / "journal.jsonl").stat().st_size / 1e6, 1),
        "page_mb": round((folder / "report.html").stat().st_size / 1e6, 1),
    }


def load(browser: Browser, page_file: Path) -> dict[str, float]:
    """Milliseconds of one opening in a fresh context, and of one search."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto(page_file.as_uri())
        expect(page.locator("#detail h3")).to_be_visible(timeout=60_000)
        while len(seen := page.evaluate("window.seen")) < 3:
            time.sleep(0.05)
        begun = time.monotonic()
        page.fill("[name=q]", "twelve of them, or so it seems")
        expect(page.locator("#found")).to_have_text(re.compile("% searched"), timeout=60_000)
        expect(page.locator("#found")).to_have_text(re.compile("interventions$"), timeout=60_000)
        return {name: round(value) for name, value in seen.items()} | {
            "search": round(1000 * (time.monotonic() - begun))
        }


def main() -> None:
    """Measure and write the result."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, launched(playwright) as browser:
        run = journals.write_run(Path(folder), INTERVENTIONS, length=8)
        made = make(run)
        loads = [load(browser, run / "report.html") for _ in range(LOADS)]
        result = {
            "interventions": INTERVENTIONS,
            "making": made,
            "milliseconds_median": {name: statistics.median(item[name] for item in loads) for name in loads[0]},
            "milliseconds": loads,
            "chromium": browser.version,
            "playwright": version("playwright"),
            "cpus": os.cpu_count(),
            "load_average": round(os.getloadavg()[0], 1),
        }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
