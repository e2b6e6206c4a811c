"""One training of the GPU check, started by `gpu_check.py` in a process of its own: `gpu_check_run.py NAME FOLDER`."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_check_world import save_policy, train

VLLM = {"use_vllm": True, "vllm_mode": "colocate"}
SLEEP = {**VLLM, "vllm_enable_sleep_mode": True}
PAGED = {"num_blocks": 512, "max_batch_tokens": 512}


@dataclass(frozen=True, slots=True)
class Run:
    """Which trainer, and fields of its config."""

    mentored: bool = True
    lora: bool = False
    server: bool = False
    """Generate with `vllm serve` on the second GPU."""
    options: dict[str, Any] = field(default_factory=dict)


RUNS = {
    "plain": Run(mentored=False),
    "mentored": Run(),
    "vllm_plain": Run(mentored=False, options=VLLM),
    "vllm_mentored": Run(options=VLLM),
    "vllm_sleep": Run(options=SLEEP),
    "vllm_sleep_plain": Run(mentored=False, options=SLEEP),
    "vllm_sleep_lora": Run(lora=True, options={**SLEEP, "learning_rate": 1e-2}),
    "vllm_ahead": Run(options={**VLLM, "mentor_schedule": "ahead"}),
    "vllm_server": Run(server=True, options={"use_vllm": True, "vllm_mode": "server"}),
    "paged": Run(
        options={
            "use_transformers_continuous_batching": True,
            "transformers_continuous_batching_config": PAGED,
        }
    ),
}


@contextmanager
def served(policy: Path, device: str, log: Path) -> Iterator[dict[str, Any]]:
    """A server of the policy on another GPU; gives the fields of the config that lead to it.

    The process that started this one ends the server too, should this one not get there.
    """
    port, group_port = free_ports(2)
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(policy)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--weight-transfer-config", '{"backend": "nccl"}', "--logprobs-mode", "processed_logprobs"]
    command += ["--max-logprobs", "-1", "--max-model-len", "256", "--gpu-memory-utilization", "0.2"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device, "VLLM_SERVER_DEV_MODE": "1"}
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until_up(f"http://127.0.0.1:{port}/health", server, log)
            yield {"vllm_server_base_url": f"http://127.0.0.1:{port}", "vllm_group_port": group_port}
        finally:
            server.terminate()
            server.wait(timeout=30)


def wait_until_up(url: str, server: subprocess.Popen[Any], log: Path, *, seconds: float = 150.0) -> None:
    """Return once the server answers. Raises `RuntimeError` with the end of its output if it ends or is too slow."""
    deadline = time.monotonic() + seconds
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    raise RuntimeError(f"vllm serve did not come up: {log.read_text(errors='replace')[-2000:]}")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=RUNS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--server-device", default="1", help="the GPU of `vllm serve`")
    given = parser.parse_args()
    run, policy = RUNS[given.name], given.folder / "policy"
    save_policy(policy)
    arguments: dict[str, Any] = {"mentored": run.mentored, "lora": run.lora, **run.options}
    if run.server:
        with served(policy, given.server_device, given.folder / "server.txt") as options:
            record = train(policy, given.folder / "run", **arguments, **options)
    else:
        record = train(policy, given.folder / "run", **arguments)
    (given.folder / "record.json").write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main()
    # Engines and their threads may keep a process that is done from going.
    os._exit(0)
