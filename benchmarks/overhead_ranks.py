"""One rank of the balance measurement: every collapsed group lives on rank 0. Started by overhead.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from overhead_world import HINT, TEMPLATE, Mentored, Scale, scripted_mentor, trainer

from trl_mentor.assembly import add_hint


class Timed(Mentored):
    """Times generation alone, without waiting for other ranks: of the re-roll's share, then of all of its rows.

    Both ranks generate all rows at once, each as if it were alone with them, so that the ideal is measured with the
    same neighbour on the machine as the share.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.steps: list[dict[str, float]] = []
        self._calls: list[dict[str, float]] = []

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        seconds, cpu = time.perf_counter(), time.thread_time()
        output = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        call = {"rows": len(prompt_ids), "seconds": time.perf_counter() - seconds, "cpu": time.thread_time() - cpu}
        self._calls.append(call)
        return output

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._calls = []
        output = super()._generate_and_score_completions(inputs)
        counted = self.generated
        hard = [row["prompt"] for row in self.train_dataset if row["hard"] for _ in range(self.num_generations)]
        ids = self._tokenize_prompts([add_hint(prompt, HINT, TEMPLATE) for prompt in hard])[0]
        self.accelerator.wait_for_everyone()
        self._generate_single_turn(ids, None, {}, self.num_generations)
        self.generated = counted  # these rows are the benchmark's, not the trainer's
        calls = zip(("first", "share", "all"), self._calls, strict=True)
        self.steps.append({f"{name}_{key}": value for name, call in calls for key, value in call.items()})
        return output


def main(out: Path, scale: Scale) -> None:
    torch.set_num_threads(1)
    hard = [i < scale.groups for i in range(2 * scale.groups)]
    made = trainer(Timed, scale, hard, out / "run", mentor=scripted_mentor(), max_steps=scale.warm_up + scale.rounds)
    made.train()
    seen = {
        "processes": made.accelerator.num_processes,
        "steps": made.steps[scale.warm_up :],
        "scored": made.reward_funcs[0].scored,
        "generated": made.generated,
    }
    (out / f"rank{made.accelerator.process_index}.json").write_text(json.dumps(seen))
    # A process that exits with its process group open is now and then aborted by the group's threads.
    made.accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Scale(**json.loads(sys.argv[2])))
