"""Generation with transformers, in padded batches."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessor, TopPLogitsWarper

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.engine import Generation, Request, no_room, room
from trl_mentor.evaluation.prompts import Prompts
from trl_mentor.evaluation.settings import Policy, Sampling

BATCH = 16
"""Completions at once, unless the user says otherwise."""


class TransformersEngine:
    """Decodes greedily or samples each row with a seed of its own, whatever else is in its batch.

    Of the model's own generation settings only the tokens that end a completion are used: a repetition penalty or the
    like would make the two engines differ.
    """

    def __init__(self, policy: Policy, sampling: Sampling, *, batch_size: int | None = None) -> None:
        self.batch_size = batch_size or BATCH
        self._sampling = sampling
        self._prompts = Prompts(policy)
        model = _loaded(policy)
        ends = model.generation_config.eos_token_id
        self._ends = {*(ends if isinstance(ends, list) else [ends]), self._prompts.tokenizer.eos_token_id} - {None}
        model.generation_config = GenerationConfig()
        self._model = model.eval()
        self._context = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """One completion for each request, in order. Raises `ConfigError` if they do not fit into the memory."""
        found: dict[int, Generation] = {}
        by_room: dict[int, dict[int, list[int]]] = defaultdict(dict)
        for place, request in enumerate(requests):
            ids = self._prompts.ids(request.messages)
            left = room(len(ids), self._context, self._sampling)
            if left < 1:
                found[place] = no_room(len(ids), self._context)
            else:
                by_room[left][place] = ids
        for left, rows in by_room.items():
            seeds = [requests[place].seed for place in rows]
            found.update(zip(rows, self._generate(list(rows.values()), seeds, left), strict=True))
        return [found[place] for place in range(len(requests))]

    def _generate(self, rows: list[list[int]], seeds: list[int], limit: int) -> list[Generation]:
        padding = self._prompts.tokenizer.pad_token_id
        if padding is None:
            padding = min(self._ends, default=0)
        width = max(map(len, rows))
        device = self._model.device
        ids = torch.tensor([[padding] * (width - len(row)) + row for row in rows], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
        config = GenerationConfig(
            max_new_tokens=limit, do_sample=False, eos_token_id=sorted(self._ends) or None, pad_token_id=padding
        )
        sampler = [_SeededSampling(self._sampling, seeds, device)] if self._sampling.temperature > 0 else []
        try:
            output = self._model.generate(ids, attention_mask=mask, generation_config=config, logits_processor=sampler)
        except torch.OutOfMemoryError:
            raise ConfigError(
                f"{len(rows)} completions of up to {limit} tokens do not fit into the memory at once; give a smaller "
                "--batch-size or --max-new-tokens. What is there is kept"
            ) from None
        return [self._generation(new, limit) for new in output[:, width:].tolist()]

    def _generation(self, new: list[int], limit: int) -> Generation:
        length = next((place + 1 for place, token in enumerate(new) if token in self._ends), None)
        return Generation(self._prompts.text(new[:length]), length or limit, truncated=length is None)


class _SeededSampling(LogitsProcessor):  # type: ignore[misc]
    """Adds Gumbel noise to the logits, so that their argmax is a sample; each row has a generator of its own.

    `generate` itself samples all rows from the global random state, so a row would depend on its neighbours.
    """

    def __init__(self, sampling: Sampling, seeds: Sequence[int], device: torch.device) -> None:
        self._temperature = sampling.temperature
        self._warper = TopPLogitsWarper(sampling.top_p) if sampling.top_p < 1 else None
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Logits plus noise; both have shape (batch, vocabulary)."""
        scores = scores.float() / self._temperature
        if self._warper is not None:
            scores = self._warper(input_ids, scores)
        noise = torch.stack(
            [
                torch.empty_like(row).exponential_(generator=generator)
                for row, generator in zip(scores, self._generators, strict=True)
            ]
        )
        return scores - noise.clamp_min(torch.finfo(noise.dtype).tiny).log()


def _loaded(policy: Policy) -> Any:
    """The model, an adapter merged. Raises `ConfigError` or `OSError` where that cannot be."""
    try:
        model = AutoModelForCausalLM.from_pretrained(
            policy.model, revision=policy.revision, dtype=policy.dtype, device_map="auto"
        )
    except ValueError as error:
        raise ConfigError(f"{policy.model} cannot be loaded: {error}") from error
    return model if policy.adapter is None else _with_adapter(model, policy.adapter)


def _with_adapter(model: Any, adapter: str) -> Any:
    try:
        from peft import PeftModel
    except ImportError:
        raise ConfigError("--adapter needs PEFT, which is not installed: pip install peft") from None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Found missing adapter keys")
            return PeftModel.from_pretrained(model, adapter).merge_and_unload()
    except (ValueError, RuntimeError, UserWarning) as error:
        raise ConfigError(f"the adapter {adapter} does not fit the model: {error}") from error
