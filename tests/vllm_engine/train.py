"""Training runs with one real vLLM engine on every rank of a launch; writes what this rank saw.

Started by `launcher.py`. The engine computes in float32, so that its log-probabilities can be held against a policy's.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import policy
import tiny
import torch
from accelerate import Accelerator
from datasets import Dataset
from engines import FIXED, Colocated, FileClient
from peft import LoraConfig
from trl.generation import vllm_generation
from vllm import LLM

from trl_mentor import VLLMBackend
from trl_mentor.errors import ConfigError
from trl_mentor.records import Row
from trl_mentor.rolling import Request


class Watched(tiny.Recorder):
    """The shipped trainer, holding its engine against the policy after each generation batch, re-roll and all."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.syncs = 0
        self.gaps: list[dict[str, float]] = []
        self.sampling_gaps: list[list[float]] = []
        self.ratios: list[list[dict[str, float]]] = []
        self.rerolls: list[list[dict[str, Any]]] = []
        self._initial = policy_logps(self.model)
        self.engine: Any = None
        if self.vllm_mode == "colocate":
            vars(self.vllm_generation.llm).pop("generate", None)  # that of the run before
            self.engine = Colocated(self.vllm_generation)
        elif self.accelerator.is_main_process:
            self.engine = self.vllm_generation.vllm_client
        self._sync_weights = self.vllm_generation.sync_weights
        self.vllm_generation.sync_weights = self._count_sync

    def _count_sync(self) -> None:
        self.syncs += 1
        self._sync_weights()

    def _regenerate(self, requests: list[Request], **options: Any) -> list[Row]:
        rows = super()._regenerate(requests, **options)
        asked = self._tokenize_prompts([request.sampled_under for request in requests])[0]
        self.rerolls.append([self._held_against_policy(*pair) for pair in zip(asked, rows, strict=True)])
        return rows

    @torch.no_grad()
    def _held_against_policy(self, asked: list[int], row: Row) -> dict[str, Any]:
        """A row that was to be sampled under the prompt `asked`, and how far its log-probabilities are from those."""
        logits = self.model(input_ids=torch.tensor([[*asked, *row.completion_ids]])).logits[0, len(asked) - 1 : -1]
        logps = (logits / self.temperature).log_softmax(dim=-1)
        own = logps.gather(-1, torch.tensor(row.completion_ids)[:, None]).squeeze(-1)
        gap = (own - torch.tensor(row.logprobs)).abs().max().item()
        return {"asked": asked, "prompt": row.prompt_ids, "completion": row.completion_ids, "gap": gap}

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if self.engine is not None:
            found = self.engine.logps()
            weights = {"policy": policy_logps(self.model), "initial": self._initial}
            self.gaps.append({name: (found - logps).abs().max().item() for name, logps in weights.items()})
        # TRL computes the old log-probabilities with the policy, under the prompt that the row is trained on.
        gap = (output["sampling_per_token_logps"] - output["old_per_token_logps"]) * output["completion_mask"]
        self.sampling_gaps.append(gap.abs().max(dim=1).values.tolist())
        # TRL's correction by whole sequences, its default, from what the sampler said of each token: NaN if nothing.
        found, own = output["importance_sampling_ratio"].squeeze(1), (-gap).sum(dim=1).exp()
        pairs = zip(found.tolist(), own.tolist(), strict=True)
        self.ratios.append([{"found": ratio, "own": alone} for ratio, alone in pairs])
        return output


@torch.no_grad()
def policy_logps(model: Any) -> torch.Tensor:
    """Log-probability of each token of `FIXED` but the first, shape (sequences, tokens - 1)."""
    ids = torch.tensor(FIXED)
    logps = model(input_ids=ids).logits[:, :-1].log_softmax(dim=-1)
    return logps.gather(-1, ids[:, 1:, None]).squeeze(-1)


def packed_parameters(model: Any) -> int:
    """How many parameters of an engine's model are empty because their values were packed elsewhere."""
    return sum(parameter.numel() == 0 for parameter in model.parameters())


class Verifier:
    """Every second completion succeeds, except that hard ones fail in the first roll of a step and `late` re-rolls."""

    def __init__(self, *, late: int) -> None:
        self.__name__ = "verifier"
        self.late = late
        self.sizes: list[int] = []
        self._step, self._roll = -1, 0

    def __call__(self, completions: list[Any], hard: list[bool], trainer_state: Any, **kwargs: Any) -> list[float]:
        self.sizes.append(len(completions))
        step = trainer_state.global_step
        self._step, self._roll = step, self._roll + 1 if step == self._step else 0
        return [float(i % 2 == 1 and (not is_hard or self._roll > self.late)) for i, is_hard in enumerate(hard)]


def dataset(long: dict[str, int]) -> Any:
    """The tiny world in which the question of row i has `long[i]` tokens instead of 2, with what strategies read."""
    rows = [
        {
            **row,
            "prompt": " ".join([f"w{i}"] * long.get(str(i), 2)),
            "hint": tiny.HINT,
            "hints": ["w30", "w30 w31", tiny.HINT],
            "demonstration": f"w33 w34 w35 w36 w{i}",
        }
        for i, row in enumerate(tiny.dataset())
    ]
    return Dataset.from_list(rows)


def refusal() -> str:
    """What a mentor on an engine of its own says of the engine that this process holds."""
    try:
        VLLMBackend("no-such-mentor")
    except ConfigError as error:
        return str(error)
    return ""


def run(out: Path, *, tied: bool, lora: bool, long: dict[str, int], late: int = 0, **options: Any) -> dict[str, Any]:
    """What this rank saw of one run."""
    reward = Verifier(late=late)
    mentored = options.get("mentor_strategy", "mentor") == "mentor"
    trainer = Watched(
        policy.saved(out / f"policy{os.environ.get('RANK', 0)}", tied=tied),
        reward_funcs=reward,
        args=tiny.config(out / "run", use_vllm=True, **options),
        train_dataset=dataset(long),
        processing_class=tiny.tokenizer(),
        peft_config=LoraConfig(r=8, target_modules="all-linear") if lora else None,
        **({"mentor": tiny.mentor()} if mentored else {}),
    )
    packed = trainer.vllm_generation.llm.apply_model(packed_parameters) if trainer.vllm_mode == "colocate" else []
    trainer.train()
    return {
        "rank": trainer.accelerator.process_index,
        "processes": trainer.accelerator.num_processes,
        "generation": type(trainer.vllm_generation).__name__,
        "packed": packed,
        "refusal": refusal() if trainer.vllm_mode == "colocate" else "",
        "batches": [tiny.rows(batch) for batch in trainer.batches],
        "syncs": trainer.syncs,
        "gaps": trainer.gaps,
        "sampling_gaps": trainer.sampling_gaps,
        "ratios": trainer.ratios,
        "rerolls": trainer.rerolls,
        "off_context_rows": trainer.mentor_totals.off_context_rows,
        "engine_calls": [] if trainer.engine is None else trainer.engine.calls,
        "scored": reward.sizes,
        "rescued": trainer.mentor_totals.rescued,
        "log": trainer.state.log_history,
    }


def main(out: Path, *, further: dict[str, dict[str, Any]], **given: Any) -> None:
    """A run, and further ones with the same engine that differ from it in settings and have no long questions."""
    vllm_generation.LLM = functools.cache(functools.partial(LLM, dtype="float32", enforce_eager=True))
    vllm_generation.VLLMClient = FileClient
    seen = run(out, **given)
    seen["further"] = {name: run(out, **{**given, "long": {}, **options}) for name, options in further.items()}
    (out / f"rank{seen['rank']}.json").write_text(json.dumps(seen), encoding="utf-8")
    if given["vllm_mode"] == "server":  # a colocated engine ends the process group itself
        # A process that exits with its process group open is now and then aborted by the group's threads.
        Accelerator().end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
