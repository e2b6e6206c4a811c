"""One training run on every rank of a launch; writes what this rank saw. Started by test_distributed.py."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import tiny

from trl_mentor import Mentor, ScriptedBackend
from trl_mentor.strategies.resample import ResampleStrategy


def main(out: Path, options: dict) -> None:
    hard = set(options.pop("hard"))
    reroll = tuple(options.pop("reroll", [1.0, 0.0]))
    rerolls = bool(hard) and options.get("mentor_strategy") != "none" and "mentor" not in options
    reward = tiny.HardRowsFail(reroll, rerolls=rerolls)
    if options.pop("strategy_raises", False):
        options["strategy"] = BrokenStrategy()
    if "mentor" in options:
        options["mentor"] = Mentor(ScriptedBackend(MENTORS[options["mentor"]]), deadline=1.0)
    trainer = tiny.trainer(
        out / "run", reward=reward, data=tiny.dataset(8, hard=lambda i: i in hard), log_completions=True, **options
    )
    rank = trainer.accelerator.process_index
    error = None
    try:
        trainer.train()
    except RuntimeError as caught:
        error = str(caught)
    seen = {
        "processes": trainer.accelerator.num_processes,
        "error": error,
        "batches": [tiny.rows(batch) for batch in trainer.batches],
        "advantages": [batch["advantages"].tolist() for batch in trainer.batches],
        "calls": [{"roll": call["roll"], "answer": call["answer"]} for call in reward.calls],
        "totals": asdict(trainer.mentor_totals),
        "log": trainer.state.log_history,
    }
    (out / f"rank{rank}.json").write_text(json.dumps(seen))
    # A process that exits with its process group open is now and then aborted by the group's threads.
    trainer.accelerator.end_training()


def hang(role, messages):
    threading.Event().wait(600)


def refuse(role, messages):
    raise ConnectionError("no route to mentor")


MENTORS = {"hangs": hang, "raises": refuse}


class BrokenStrategy(ResampleStrategy):
    """A strategy with a bug that shows on the main process only."""

    name = "broken"

    def prepare(self, groups):
        raise RuntimeError("a bug in prepare")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
