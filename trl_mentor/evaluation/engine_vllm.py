"""Generation with vLLM, which batches by itself."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.engine import Generation, Request, no_room, room
from trl_mentor.evaluation.prompts import Prompts
from trl_mentor.evaluation.settings import Policy, Sampling

BATCH = 512
"""Requests at once, unless the user says otherwise: a kill loses them, and the engine idles at the end of each."""


class VLLMEngine:
    """Decodes greedily or samples each request with a seed of its own, with as much context as fits the memory."""

    def __init__(
        self,
        policy: Policy,
        sampling: Sampling,
        *,
        batch_size: int | None = None,
        tensor_parallel_size: int = 1,
        gpu_memory_utilization: float = 0.9,
    ) -> None:
        self.batch_size = batch_size or BATCH
        self.sampling = sampling
        self._prompts = Prompts(policy)
        self._lora = None if policy.adapter is None else LoRARequest("adapter", 1, policy.adapter)
        # An engine in a process of its own outlives this one if that is killed, and holds the memory of the GPU.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        self._llm = LLM(
            policy.model,
            revision=policy.revision,
            tokenizer_revision=policy.revision,
            dtype=policy.dtype,
            seed=sampling.seed,
            tensor_parallel_size=tensor_parallel_size,
            gpu_memory_utilization=gpu_memory_utilization,
            max_model_len=-1,
            enable_prefix_caching=True,
            **({} if policy.adapter is None else {"enable_lora": True, "max_lora_rank": _rank(policy.adapter)}),
        )
        self._context = int(self._llm.model_config.max_model_len)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """One completion for each request, in order."""
        prompts = [self._prompts.ids(request.messages) for request in requests]
        found = {
            place: no_room(len(ids), self._context)
            for place, ids in enumerate(prompts)
            if room(len(ids), self._context, self.sampling) < 1
        }
        fit = [place for place in range(len(requests)) if place not in found]
        outputs = self._llm.generate(
            [{"prompt_token_ids": prompts[place]} for place in fit],
            [self._params(requests[place], len(prompts[place])) for place in fit],
            use_tqdm=False,
            lora_request=self._lora,
        )
        found.update(zip(fit, map(self._generation, outputs), strict=True))
        return [found[place] for place in range(len(requests))]

    def _params(self, request: Request, prompt_tokens: int) -> SamplingParams:
        sampling = self.sampling
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=room(prompt_tokens, self._context, sampling),
            seed=request.seed,
            detokenize=False,
        )

    def _generation(self, output: Any) -> Generation:
        (made,) = output.outputs
        ids = made.token_ids
        return Generation(self._prompts.text(ids), len(ids), truncated=made.finish_reason == "length")


def _rank(adapter: str) -> int:
    """The bound that vLLM needs on the adapter's rank, which must be one of its sizes: 8, 16, 32 and so on."""
    path = Path(adapter, "adapter_config.json")
    try:
        rank = int(json.loads(path.read_bytes())["r"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} does not tell the adapter's rank; give a folder that PEFT wrote") from None
    return max(8, 1 << (rank - 1).bit_length())
