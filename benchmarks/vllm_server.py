"""A real vLLM server with a tiny chat model, prefix caching on; runs where vLLM is installed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import chat_model

MODEL = "mentor"
UP_WITHIN = 500.0
"""Seconds; a busy machine with two cores takes a tenth of that."""

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


@contextmanager
def served(folder: Path, texts: Iterable[str]) -> Iterator[str]:
    """The root of a vLLM server that holds the tiny model, for as long as the context lasts.

    `texts` are such as it will read, for the vocabulary.
    """
    chat_model.save(folder / "model", texts)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder / "model"]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", port, "--enforce-eager"]
    command += ["--enable-prefix-caching", "--enable-prompt-tokens-details", "--gpu-memory-utilization", 0.2]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            env={**ENVIRONMENT, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_up(process, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


def _wait_until_up(process: subprocess.Popen[bytes], root: str, log: Path) -> None:
    end = time.monotonic() + UP_WITHIN
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{root}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    raise SystemExit(f"the server did not come up:\n{log.read_text(errors='replace')[-4000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process with its whole group: asked first, so that it can end what it started, then killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(20)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
