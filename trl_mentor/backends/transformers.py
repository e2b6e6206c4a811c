"""A mentor that runs in this process: a local chat model through its own chat template."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessor,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
)

from trl_mentor.errors import BackendError, ConfigError
from trl_mentor.records import Message, Reply, Role, Usage


class TransformersBackend:
    """Generates with a local causal language model, one request at a time.

    `model` is a name or directory to load, onto `device` in `dtype`, or a model that stands already, with its
    `tokenizer`. A model that is given keeps its device, dtype, mode and generation settings; it must be in evaluation
    mode, so a policy in training cannot be its own mentor here. Random numbers come from a generator of the backend's
    own, never from the global one that the training run uses.

    Raises `ConfigError` for a tokenizer without a chat template and for settings outside their range.
    """

    def __init__(
        self,
        model: str | PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype = "auto",
        temperature: float = 0.7,
        max_new_tokens: int = 512,
    ) -> None:
        if not 0 <= temperature <= 2:
            raise ConfigError(f"the mentor's temperature is {temperature}; it must be from 0 to 2")
        if max_new_tokens < 1:
            raise ConfigError(f"the mentor's max_new_tokens is {max_new_tokens}; it must be at least 1")
        if isinstance(model, str):
            self.model, self.tokenizer = _load(model, tokenizer, device, dtype)
        else:
            self.model, self.tokenizer = _accept(model, tokenizer, device, dtype)
        if self.tokenizer.chat_template is None:
            raise ConfigError(
                f"the mentor's tokenizer ({self.tokenizer.name_or_path or type(self.tokenizer).__name__}) has no chat "
                "template; choose an instruction-tuned model or set tokenizer.chat_template"
            )
        self.temperature = temperature
        self.max_new_tokens = max_new_tokens
        self._lock = threading.Lock()
        self._generator = torch.Generator(self.model.device).manual_seed(0)

    def __repr__(self) -> str:
        return f"TransformersBackend({self.model.name_or_path or type(self.model).__name__!r})"

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        """Generate one reply; `timeout` seconds include the wait for other requests.

        Raises `BackendError` when the reply is not complete by then, which is checked after every token, when the
        conversation does not fit the model, and when the model has been put into training mode.
        """
        deadline = time.monotonic() + timeout
        if not self._lock.acquire(timeout=max(timeout, 0.0)):
            raise BackendError(f"the local mentor was busy with other requests for {timeout:.1f} s")
        try:
            return self._generate(messages, deadline)
        finally:
            self._lock.release()

    def _generate(self, messages: Sequence[Message], deadline: float) -> Reply:
        if self.model.training:
            raise BackendError("the mentor's model is in training mode; give the mentor a model of its own")
        inputs = self.tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to(self.model.device)
        prompt_tokens = inputs["input_ids"].shape[1]
        room = self._max_length() - prompt_tokens
        if room < 1:
            raise BackendError(
                f"the conversation has {prompt_tokens} tokens; the mentor has {self._max_length()} in all"
            )
        config, ends = self._generation_config(min(room, self.max_new_tokens))
        clock = _Deadline(deadline)
        sampling = [_OwnSampling(self.temperature, self._generator)] if self.temperature > 0 else []
        output = self.model.generate(
            inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            generation_config=config,
            logits_processor=sampling,
            stopping_criteria=[clock],
        )
        new_ids = output[0, prompt_tokens:].tolist()
        finished = bool(new_ids) and new_ids[-1] in ends
        if clock.passed and not finished:
            raise BackendError(f"the local mentor ran out of time after {len(new_ids)} tokens")
        text = self.tokenizer.decode(new_ids, skip_special_tokens=True)
        return Reply(text, Usage(prompt_tokens, len(new_ids)), truncated=not finished)

    def _generation_config(self, max_new_tokens: int) -> tuple[GenerationConfig, set[int]]:
        """Settings of one request, and the tokens that end a reply: the model's and the chat template's."""
        ends = self.model.generation_config.eos_token_id
        ids = {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id} - {None}
        padding = self.tokenizer.pad_token_id
        # Whatever is not set here, `generate` takes from the model's own settings.
        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            num_beams=1,
            temperature=1.0,
            top_p=1.0,
            top_k=50,
            eos_token_id=sorted(ids) or None,
            pad_token_id=padding if padding is not None else min(ids, default=0),
        )
        return config, ids

    def _max_length(self) -> int:
        """Tokens of prompt and reply together that the model's positions allow."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or 2**31


class _OwnSampling(LogitsProcessor):  # type: ignore[misc]
    """Adds Gumbel noise to the logits, so that their argmax is a sample at `temperature`.

    `generate` itself can only sample from the global random state.
    """

    def __init__(self, temperature: float, generator: torch.Generator) -> None:
        self.temperature = temperature
        self.generator = generator

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Logits plus noise; both have shape (batch, vocabulary)."""
        noise = torch.empty_like(scores, dtype=torch.float32).exponential_(generator=self.generator)
        return scores.float() / self.temperature - noise.log()


class _Deadline(StoppingCriteria):  # type: ignore[misc]
    """Stops generation once the time has come, and remembers that it did."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.passed = False

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """A truth value per row of `input_ids`, shape (batch,)."""
        self.passed = time.monotonic() >= self.deadline
        return torch.full((input_ids.shape[0],), self.passed, device=input_ids.device, dtype=torch.bool)


def _load(
    name: str, tokenizer: PreTrainedTokenizerBase | None, device: str | torch.device | None, dtype: str | torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype).eval()
    if device is not None:
        model = model.to(device)
    return model, AutoTokenizer.from_pretrained(name) if tokenizer is None else tokenizer


def _accept(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    device: str | torch.device | None,
    dtype: str | torch.dtype,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if tokenizer is None:
        raise ConfigError(
            "a mentor model that is already loaded needs its tokenizer: TransformersBackend(model, tokenizer)"
        )
    if device is not None or dtype != "auto":
        raise ConfigError("device and dtype are for a model that is loaded by name; this one keeps its own")
    if model.training:
        raise ConfigError(
            "the mentor's model is in training mode; call model.eval(), and if it is the policy, load a second copy"
        )
    return model, tokenizer
