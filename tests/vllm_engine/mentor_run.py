"""A mentor on a vLLM engine of its own, asked by itself and by a trainer whose policy generates with transformers.

Started by `launcher.py`; writes what this rank saw.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import chat_model
import numpy as np
import policy
import tiny
import torch

from trl_mentor import Mentor, MentorGRPOTrainer, VLLMBackend
from trl_mentor.errors import BackendError, ConfigError
from trl_mentor.records import Reply, Role

SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"enum": ["HIGH", "LOW"]}},
    "required": ["verdict"],
    "additionalProperties": False,
}
STORY = "A tank is filled at 7 litres per minute while a pump takes 2 litres out of it. " * 60


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


def say(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def outcome(backend: VLLMBackend, text: str, role: Role = Role.GENERATION, **options: Any) -> dict[str, Any]:
    """A reply, or the error, as JSON."""
    try:
        reply: Reply = backend.chat(say(text), role=role, **{"timeout": 120.0, **options})
    except BackendError as error:
        return {"error": str(error)}
    return {
        "text": reply.text,
        "truncated": reply.truncated,
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
        "cached_tokens": reply.usage.cached_tokens,
    }


def ask_at_once(backend: VLLMBackend, texts: list[str]) -> list[dict[str, Any]]:
    barrier = threading.Barrier(len(texts))

    def ask(text: str) -> dict[str, Any]:
        barrier.wait()
        return outcome(backend, text)

    with ThreadPoolExecutor(len(texts)) as pool:
        return list(pool.map(ask, texts))


def ask_alone(folder: Path) -> tuple[VLLMBackend, dict[str, Any]]:
    """A backend, and what it answered before there was a trainer."""
    before = random_states()
    backend = VLLMBackend(
        str(folder),
        temperature=0.0,
        max_tokens=24,
        thinking={Role.REPAIR: False},
        enforce_eager=True,
        dtype="float32",
        gpu_memory_utilization=0.2,
    )
    sizes, generate = [], backend._llm.generate

    def counted(prompts: list[Any], *args: Any, **options: Any) -> list[Any]:
        sizes.append(len(prompts))
        return generate(prompts, *args, **options)

    backend._llm.generate = counted
    seen = {
        "story": [outcome(backend, STORY + end) for end in ("Why?", "How?")],
        "alone": [outcome(backend, f"{'Why ' * count}?") for count in range(12)],
        "too_late": outcome(backend, "Why?", timeout=0.0),
        "json": outcome(backend, "HIGH or LOW?", Role.JUDGMENT, schema=SCHEMA),
        "not_thinking": outcome(backend, "Why Why ?", Role.REPAIR),
    }
    sizes.clear()
    seen["at_once"] = ask_at_once(backend, [f"{'Why ' * count}?" for count in range(12)] + [STORY * 20])
    return backend, {**seen, "sizes": list(sizes), "random_states_kept": random_states() == before}


def refusal(out: Path, backend: VLLMBackend) -> str:
    """What a trainer says that is to hold an engine of its own beside that of the mentor."""
    args = tiny.config(out / "colocated", use_vllm=True, vllm_mode="colocate")
    try:
        MentorGRPOTrainer("no-such-policy", reward_funcs=[], args=args, mentor=Mentor(backend))
    except ConfigError as error:
        return str(error)
    return ""


def main(out: Path, *, named: bool, **options: Any) -> None:
    """`named`: the settings name the mentor, and the trainer makes it; else it is given as an object."""
    folder = out / "mentor"
    seen: dict[str, Any] = {}
    given: dict[str, Any] = {}
    if named:
        if not folder.exists():
            chat_model.save(folder)
        options = {**options, "mentor_backend": "vllm", "mentor_model": str(folder), "mentor_max_tokens": 24}
    else:
        chat_model.save(folder)
        backend, seen = ask_alone(folder)
        seen["refusal"] = refusal(out, backend)
        given["mentor"] = Mentor(backend)
    trainer = tiny.Recorder(
        policy.saved(out / "policy", tied=True),
        reward_funcs=tiny.HardRowsFail(),
        args=tiny.config(out / "run", max_steps=2, **options),
        train_dataset=tiny.dataset(),
        processing_class=tiny.tokenizer(),
        **given,
    )
    trainer.train()
    seen["processes"] = trainer.accelerator.num_processes
    seen["log"] = trainer.state.log_history
    (out / f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(seen), encoding="utf-8")
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
