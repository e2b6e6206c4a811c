"""Completions of one policy by the engines of an evaluation; started by `launcher.py`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import policy
import torch
from peft import LoraConfig, get_peft_model

from trl_mentor.evaluation.engine import Engine, Request
from trl_mentor.evaluation.engines import choose_engine, load_engine
from trl_mentor.evaluation.settings import EngineKind, Policy, Sampling

QUESTIONS = [" ".join([f"w{i}"] * (1 + 3 * i)) for i in range(6)] + ["w1 " * 200]


def ask(engine: Engine, seeds: range, questions: list[str]) -> list[dict[str, Any]]:
    requests = [
        Request([{"role": "user", "content": text}], seed) for text, seed in zip(questions, seeds, strict=True)
    ]
    return [asdict(made) for made in engine.generate(requests)]


def main(out: Path) -> None:
    """Greedy completions by both engines, with and without an adapter, and samples by vLLM."""
    model = policy.saved(out / "policy", tied=True)
    torch.manual_seed(1)
    adapted = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    adapted.save_pretrained(out / "adapter")
    seen: dict[str, Any] = {"processes": 1, "auto": str(choose_engine("auto"))}
    greedy = Sampling(temperature=0, max_new_tokens=12)
    seeds = range(len(QUESTIONS))
    for name, adapter in (("plain", None), ("adapted", str(out / "adapter"))):
        given = Policy(str(out / "policy"), dtype="float32", adapter=adapter)
        seen[f"{name}/transformers"] = ask(load_engine(EngineKind.TRANSFORMERS, given, greedy), seeds, QUESTIONS)
    # One engine for a process: with the adapter it is loaded once more, in a process of its own.
    adapter = str(out / "adapter") if json.loads(sys.argv[2])["adapted"] else None
    given = Policy(str(out / "policy"), dtype="float32", adapter=adapter)
    engine: Any = load_engine(EngineKind.VLLM, given, greedy, gpu_memory_utilization=0.2)
    seen["vllm"] = ask(engine, seeds, QUESTIONS)
    engine.sampling = Sampling(temperature=1.0, max_new_tokens=12)
    seen["sampled"] = ask(engine, seeds, QUESTIONS)
    seen["sampled alone"] = [ask(engine, range(i, i + 1), [QUESTIONS[i]])[0] for i in seeds]
    (out / "rank0.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
