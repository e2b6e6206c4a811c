"""The two kinds of engine as the tests see them: what was sent to them, and what they say about fixed sequences."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from trl.generation.vllm_client import VLLMClient
from vllm import SamplingParams

FIXED = [[random.Random(seed).randrange(10, 50) for _ in range(12)] for seed in range(8)]
"""Sequences whose log-probabilities tell which weights an engine holds."""


class Colocated:
    """Stands between a trainer and its colocated engine."""

    def __init__(self, generation: Any) -> None:
        self.calls: list[dict[str, Any]] = []
        self._generate = generation.llm.generate
        generation.llm.generate = self.generate

    def generate(self, prompts: list[dict[str, Any]], *, sampling_params: SamplingParams, **options: Any) -> list[Any]:
        outputs = self._generate(prompts, sampling_params=sampling_params, **options)
        self.calls.append(
            {
                "params": repr(sampling_params),
                "prompts": [list(prompt["prompt_token_ids"]) for prompt in prompts],
                "completions": [list(output.outputs[0].token_ids) for output in outputs],
            }
        )
        return outputs

    def logps(self) -> torch.Tensor:
        """Log-probability of each token of `FIXED` but the first, shape (sequences, tokens - 1)."""
        params = SamplingParams(max_tokens=1, prompt_logprobs=0)
        outputs = self._generate([{"prompt_token_ids": ids} for ids in FIXED], sampling_params=params, use_tqdm=False)
        return torch.tensor(
            [
                [found[token].logprob for token, found in zip(ids[1:], output.prompt_logprobs[1:], strict=True)]
                for ids, output in zip(FIXED, outputs, strict=True)
            ]
        )


class FileClient(VLLMClient):
    """TRL's client of a server, except that weights go through a file: its own way needs NCCL and so a GPU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[dict[str, Any]] = []

    def init_communicator(self, device: Any = 0) -> None:
        pass

    def update_named_params(self, metadata: Any, named_params: Iterator[tuple[str, torch.Tensor]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "weights.safetensors")
            # Merged adapters are taken out again when the iterator ends, so each tensor is copied as it comes.
            save_file({name: tensor.detach().clone() for name, tensor in named_params}, path)
            call = {"method": "reload_from_file", "args": [str(path)]}
            self.session.post(f"{self.base_url}/collective_rpc", json=call).raise_for_status()

    def generate(self, prompts: list[list[int]], **params: Any) -> dict[str, Any]:
        output = super().generate(prompts, **params)
        size = params["n"]
        self.calls.append(
            {
                "params": repr(params),
                "prompts": [list(ids) for ids in prompts for _ in range(size)],
                "completions": [list(ids) for ids in output["completion_ids"]],
            }
        )
        return output

    def logps(self) -> torch.Tensor:
        """Log-probability of each token of `FIXED` but the first, shape (sequences, tokens - 1)."""
        found = self.get_sequence_logprobs(FIXED, [1] * len(FIXED), top_logprobs=50)["actual_logprobs"]
        return torch.tensor(found).squeeze(-1)
