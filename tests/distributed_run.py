"""Training runs on every rank of a launch, one after the other in one process group; `launch` starts it.

Each case writes what each rank saw to `<out>/<case>/rank<rank>.json`, and trains in `<out>/<case>/run`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import letters
import tiny

from trl_mentor import Mentor, ScriptedBackend
from trl_mentor.strategies.resample import ResampleStrategy


def launch(out: Path, cases: dict[str, dict], *, processes: int = 2) -> dict[str, list[dict]]:
    """What each rank saw of each case, by the name of the case."""
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    result = subprocess.run(
        [*command, __file__, str(out), json.dumps(cases)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    seen = {
        name: [json.loads((out / name / f"rank{rank}.json").read_text()) for rank in range(processes)]
        for name in cases
    }
    assert {rank["processes"] for ranks in seen.values() for rank in ranks} == {processes}
    return seen


def main(out: Path, cases: dict[str, dict]) -> None:
    trainer = None
    for name, options in cases.items():
        (out / name).mkdir(exist_ok=True)
        kind = patterned if "patterns" in options else lettered if "rolls" in options else hard_rows
        trainer, seen = kind(out / name / "run", dict(options))
        rank = trainer.accelerator.process_index
        (out / name / f"rank{rank}.json").write_text(json.dumps(seen))
    # A process that exits with its process group open is now and then aborted by the group's threads.
    trainer.accelerator.end_training()


def hard_rows(out: Path, options: dict) -> tuple[Any, dict]:
    """A run over eight prompts, of which the rows `hard` collapse whenever they come up."""
    hard = set(options.pop("hard"))
    reroll = tuple(options.pop("reroll", [1.0, 0.0]))
    rerolls = bool(hard) and options.get("mentor_strategy") != "none" and "mentor" not in options
    reward = tiny.HardRowsFail(reroll, rerolls=rerolls)
    verifier = BreaksOnOneRank(reward) if options.get("mentor_reward_errors") else reward
    if options.pop("strategy_raises", False):
        options["strategy"] = BrokenStrategy()
    if "mentor" in options:
        options["mentor"] = Mentor(ScriptedBackend(MENTORS[options["mentor"]]), deadline=1.0)
    trainer = tiny.trainer(
        out, reward=verifier, data=tiny.dataset(8, hard=lambda i: i in hard), log_completions=True, **options
    )
    error = None
    try:
        trainer.train()
    except RuntimeError as caught:
        error = str(caught)
    calls = [{"roll": call["roll"], "answer": call["answer"]} for call in reward.calls]
    return trainer, {**common(trainer), "error": error, "calls": calls}


def patterned(out: Path, options: dict) -> tuple[Any, dict]:
    """A run in which `patterns` says for each generation batch what becomes of each of its groups."""
    size = options["num_generations"]
    reward = Patterned(options.pop("patterns"), size=size)
    data = tiny.dataset(options.pop("rows"), conversational=options.pop("conversational", False))
    if options.pop("stream", False):
        data = data.to_iterable_dataset()
    if options.get("eval_strategy"):
        options["eval_dataset"] = tiny.dataset(3)
    backend = tiny.backend()
    trainer = tiny.trainer(out, reward=reward, data=data, cls=Announcer, mentor=Mentor(backend), **options)
    trainer.train()
    asked = Counter(request.role for request in backend.requests)
    return trainer, {**common(trainer), "calls": reward.calls, "asked": asked}


def lettered(out: Path, options: dict) -> tuple[Any, dict]:
    """A run in which `rolls` say how each prompt is answered in each kind of roll."""
    if options.pop("material", False):
        options["data"] = with_material(tiny.dataset(4))
    if options.get("mentor_critique") == "text":
        options["mentor"] = tiny.mentor()
    trainer = letters.trained(out, options.pop("rolls"), **options)
    memory, probes = trainer.books.memory.state(), trainer.books.prober.state()
    return trainer, {**common(trainer), "calls": trainer.verifier.calls, "memory": memory, "probes": probes}


def with_material(data: Any) -> Any:
    """The same rows with what strategies read of a data set."""
    rows = len(data)
    data = data.add_column("hint", [tiny.HINT] * rows)
    data = data.add_column("hints", [["w30", "w30 w31", tiny.HINT]] * rows)
    return data.add_column("demonstration", ["w33 w34 w35 w36"] * rows)


def common(trainer: Any) -> dict:
    return {
        "processes": trainer.accelerator.num_processes,
        "batches": [tiny.rows(batch) for batch in trainer.batches],
        "advantages": [batch["advantages"].tolist() for batch in trainer.batches],
        "totals": asdict(trainer.mentor_totals),
        "generated": trainer.generated,
        "steps": trainer.state.global_step,
        "log": trainer.state.log_history,
    }


FIRST = {"c": (0.0, 0.0), "n": (None, 0.0), "m": (0.0, 1.0), "a": (1.0, 1.0), "u": (None, None)}
SECOND = ((1.0, 0.0), (1.0, 1.0), (0.0, 0.0))


class Patterned:
    """Rewards by the place of a row in its batch, the same on every rank.

    A pattern has one letter per group of a generation batch: `c` every completion fails, `n` so does every one that
    can be scored, `m` every second one succeeds, `a` all succeed, `u` none can be scored. The re-rolled groups of a
    batch are in turn rescued, saturated, still collapsed.
    """

    def __init__(self, patterns: list[str], *, size: int) -> None:
        self.__name__ = "verifier"
        self.patterns = patterns
        self.size = size
        self.rank = 0
        self.batch = -1
        self.roll = ""
        self.calls: list[dict[str, Any]] = []

    def begin(self, *, training: bool) -> None:
        """A batch is about to be generated."""
        self.batch += training
        self.roll = "first" if training else "evaluation"

    def __call__(
        self, prompts: list[Any], completion_ids: list[list[int]], answer: list[str], **kwargs: Any
    ) -> list[float | None]:
        pattern = self.patterns[self.batch]
        if self.roll == "first":
            groups = [FIRST[letter] for letter in pattern]
        elif self.roll == "second":
            collapsed = sum(letter in "cn" for letter in pattern)
            groups = [SECOND[position % len(SECOND)] for position in range(collapsed)]
        else:
            groups = [FIRST["c"]]  # evaluation: every group has collapsed
        numbers = range(self.rank * len(answer), (self.rank + 1) * len(answer))
        values = [groups[number // self.size % len(groups)][number % 2] for number in numbers]
        self.calls.append(
            {"roll": self.roll, "batch": self.batch, "answer": answer, "ids": completion_ids, "prompts": prompts}
        )
        self.roll = {"first": "second", "evaluation": "evaluation"}.get(self.roll, "too many")
        return values


class Announcer(tiny.Recorder):
    """Tells its reward function when a generation batch begins, which tells first rolls from re-rolls."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        (reward,) = self.reward_funcs
        reward.rank = self.accelerator.process_index
        reward.begin(training=self.model.training)
        return super()._generate_and_score_completions(inputs)


def hang(role, messages):
    threading.Event().wait(600)


def refuse(role, messages):
    raise ConnectionError("no route to mentor")


class BreaksOnOneRank:
    """A verifier whose first call raises on the second rank only."""

    def __init__(self, inner: tiny.HardRowsFail) -> None:
        self.__name__ = "verifier"
        self.inner = inner

    def __call__(self, **given: Any) -> list[float | None]:
        first = not self.inner.calls
        values = self.inner(**given)
        if first and os.environ["RANK"] == "1":
            raise OSError("no sandbox")
        return values


MENTORS = {"hangs": hang, "raises": refuse}


class BrokenStrategy(ResampleStrategy):
    """A strategy with a bug that shows on the main process only."""

    name = "broken"

    def prepare(self, groups):
        raise RuntimeError("a bug in prepare")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    # Threads of torch now and then abort a process on its way out, when everything is done and written.
    os._exit(0)
