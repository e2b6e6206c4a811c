"""Processes that the tests start: training runs and a server, each in a group of its own that a timeout ends whole."""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vllm_server import stop

HERE = Path(__file__).parent
BENCHMARKS = HERE.parent.parent / "benchmarks"

TIMEOUT = 500
"""Seconds that a process may take to finish or to come up; on two idle cores it takes less than a tenth of that."""

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), str(BENCHMARKS)]),
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


def start(command: list[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start Python with these arguments in a process group of its own, its output going to a file."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, *command],
            env={**ENVIRONMENT, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def attempt(
    out: Path,
    *,
    processes: int = 1,
    tied: bool = True,
    lora: bool = False,
    long: dict[int, int] | None = None,
    further: dict[str, dict[str, Any]] | None = None,
    **options: Any,
) -> tuple[int, str]:
    """Exit code and output of a run of four steps.

    `tied` and `long` describe the policy and the data set (see `policy.py` and `train.py`); `options` are settings of
    the trainer; `further` are those in which more runs of the same processes differ, which share its engine.
    """
    defaults = {"max_steps": 4, "temperature": 0.9, "vllm_gpu_memory_utilization": 0.2, "vllm_mode": "colocate"}
    given = {"tied": tied, "lora": lora, "long": long or {}, "further": further or {}, **defaults, **options}
    return _launched(out, "train.py", given, processes)


def _launched(out: Path, script: str, given: dict[str, Any], processes: int) -> tuple[int, str]:
    """Exit code and output of one of the scripts beside this file, which takes a folder and JSON."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    log = out / "train.log"
    process = start([*launch, str(HERE / script), str(out), json.dumps(given)], log)
    try:
        code = process.wait(TIMEOUT)
    finally:
        stop(process)
    return code, log.read_text(errors="replace")


def train(out: Path, *, processes: int = 1, **given: Any) -> list[dict[str, Any]]:
    """What each rank saw of a run that `attempt` describes and that ended well."""
    return _ranks(out, processes, attempt(out, processes=processes, **given))


def run(out: Path, script: str, given: dict[str, Any], *, processes: int = 1) -> list[dict[str, Any]]:
    """What each rank of another script saw, if it ended well."""
    return _ranks(out, processes, _launched(out, script, given, processes))


def _ranks(out: Path, processes: int, ended: tuple[int, str]) -> list[dict[str, Any]]:
    code, output = ended
    assert code == 0, output[-6000:]
    ranks = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(processes)]
    assert [rank["processes"] for rank in ranks] == [processes] * processes
    return ranks


@contextmanager
def server(folder: Path, *, max_model_len: int) -> Iterator[str]:
    """The address of a server that `trl vllm-serve` has started, for as long as the context lasts."""
    making = start([str(HERE / "policy.py"), str(folder / "policy")], folder / "policy.log")
    assert making.wait(TIMEOUT) == 0, (folder / "policy.log").read_text(errors="replace")
    # vLLM's command line looks for the metadata of a distribution called vllm; the CPU engine comes as vllm-cpu.
    version = f"{importlib.metadata.version('vllm-cpu')}+cpu"
    metadata = folder / "shim" / f"vllm-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    path = os.pathsep.join([str(folder / "shim"), ENVIRONMENT["PYTHONPATH"]])
    port = free_port()
    options = {
        "--model": folder / "policy",
        "--host": "127.0.0.1",
        "--port": port,
        "--dtype": "float32",
        "--enforce_eager": "true",
        "--gpu_memory_utilization": 0.2,
        "--max_model_len": max_model_len,
        "--worker-extension-cls": "server_worker.ReloadFromFile",
    }
    arguments = [str(part) for option in options.items() for part in option]
    process = start(["-m", "trl.cli.main", "vllm-serve", *arguments], folder / "server.log", PYTHONPATH=path)
    try:
        wait_until_up(process, f"http://127.0.0.1:{port}", folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"the server did not come up:\n{log.read_text(errors='replace')[-6000:]}")
