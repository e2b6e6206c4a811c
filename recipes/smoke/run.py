"""Runs the smoke recipe from nothing: model and data, mentor server, three optimizer steps, what the journal says."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from rich.console import Console

from trl_mentor import read_journal
from trl_mentor.cli.show import show_intervention
from trl_mentor.journal import JOURNAL_PATH

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "recipes/smoke/grpo.yaml"
SCRIPTS = Path(sysconfig.get_path("scripts"))
START_SECONDS = 180


def main() -> int:
    """Prepare, serve, train, report; further words go to `trl-mentor grpo`. Returns the exit code of the training."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--output_dir", type=Path, help="a new directory (default: the one in the recipe)")
    given, words = parser.parse_known_args()
    os.chdir(ROOT)
    recipe = yaml.safe_load(Path(RECIPE).read_text(encoding="utf-8"))
    output_dir = given.output_dir or Path(recipe["output_dir"])
    if (output_dir / JOURNAL_PATH).exists():
        raise SystemExit(f"{output_dir} holds an earlier run; delete it or choose another --output_dir")
    subprocess.run([sys.executable, "recipes/smoke/prepare.py"], check=True)
    with mentor_server(recipe["mentor_model"], recipe["mentor_base_url"]):
        started = time.monotonic()
        command = [SCRIPTS / "trl-mentor", "grpo", "--config", RECIPE, "--output_dir", output_dir, *words]
        code = subprocess.run(command).returncode
        seconds = time.monotonic() - started
    if code == 0:
        report(output_dir, seconds)
    return code


@contextmanager
def mentor_server(model: str, base_url: str) -> Iterator[None]:
    """`transformers serve` for the time of the block; it is healthy when the block starts, and gone after it."""
    host, port = urlsplit(base_url).hostname, urlsplit(base_url).port
    with socket.socket() as probe:
        if probe.connect_ex((host, port)) == 0:
            raise SystemExit(
                f"something listens at {host}:{port} already; stop it, or change mentor_base_url in {RECIPE}"
            )
    log = Path("outputs/smoke/server.log")
    command = [SCRIPTS / "transformers", "serve", model, "--device", "cpu", "--host", host, "--port", str(port)]
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until_healthy(server, f"http://{host}:{port}/health", log)
        yield
    finally:
        # It may be busy with a request that nobody waits for any more.
        server.kill()
        server.wait()


def wait_until_healthy(server: subprocess.Popen[Any], url: str, log: Path) -> None:
    """Return when the server answers; leave with its log's name when it ends or takes too long."""
    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.5)
    raise SystemExit(f"the mentor's server did not come up within {START_SECONDS} s; see {log}")


def report(output_dir: Path, seconds: float) -> None:
    """Print the first intervention of the run, and what share of its time went to the mentor."""
    journal = read_journal(output_dir)
    show_intervention(journal[0], Console())
    newest = max(output_dir.glob("checkpoint-*/trainer_state.json"), key=lambda path: path.stat().st_mtime)
    history = json.loads(newest.read_text(encoding="utf-8"))["log_history"]
    waited, steps = (sum(entry.get(name, 0.0) for entry in history) for name in ("mentor/seconds", "step_time"))
    print(f"\n{len(journal)} interventions; the whole command took {seconds:.0f} s, its training steps {steps:.0f} s.")
    print(f"{waited:.0f} s of the steps, {waited / steps:.0%}, were waiting for the mentor.")


if __name__ == "__main__":
    raise SystemExit(main())
