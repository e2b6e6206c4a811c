"""A mentor that runs in this process: a local chat model through its own chat template."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from trl_mentor.backends.batching import Collector
from trl_mentor.backends.padded import End, Row, generate_padded, padded_tokens
from trl_mentor.backends.thinking import Thinking, checked_thinking
from trl_mentor.errors import BackendError, ConfigError, RequestRefusedError
from trl_mentor.mentor_pool import describe, outcome_of
from trl_mentor.records import Message, Reply, Role, Usage

logger = logging.getLogger(__name__)

_MAX_PADDED_TOKENS = 65_536
"""Tokens of one batch, padding and room for the replies included: 8 GB of keys and values for a model of 8 B."""


_INTERRUPTED = "the reply was interrupted: the training is over"


@dataclass(frozen=True, slots=True)
class _Request:
    messages: list[Message]
    role: Role
    deadline: float
    asked: float


class TransformersBackend:
    """Generates with a local causal language model; concurrent requests share one `generate`.

    `model` is a name or directory to load, onto `device` in `dtype`, or a model that stands already, with its
    `tokenizer`. A model that is given keeps its device, dtype, mode and generation settings; it must be in evaluation
    mode, so a policy in training cannot be its own mentor here. Random numbers come from a generator of the backend's
    own, never from the global one that the training run uses.

    Requests that arrive while a batch runs make the next one, of at most `max_batch_size`. A batch that does not fit
    into the memory is tried again in two halves. `thinking` says by role whether `enable_thinking` of the chat
    template is on or off; a template that does not know it ignores it.

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
        max_batch_size: int = 16,
        thinking: Thinking | None = None,
    ) -> None:
        if not 0 <= temperature <= 2:
            raise ConfigError(f"the mentor's temperature is {temperature}; it must be from 0 to 2")
        for name, value in (("max_new_tokens", max_new_tokens), ("max_batch_size", max_batch_size)):
            if value < 1:
                raise ConfigError(f"the mentor's {name} is {value}; it must be at least 1")
        self.thinking = checked_thinking(thinking)
        self._loaded = model if isinstance(model, str) and tokenizer is None else None
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
        self._max_padded_tokens = _MAX_PADDED_TOKENS
        self._interrupted = -float("inf")
        self._generator = torch.Generator(self.model.device).manual_seed(0)
        self._collector: Collector[_Request, Reply] = Collector(self._answer, size=max_batch_size)

    def __repr__(self) -> str:
        return f"TransformersBackend({self.model.name_or_path or type(self.model).__name__!r})"

    @property
    def identity(self) -> str | None:
        """What a reply depends on beside its conversation, as JSON; None for a model that was given, as it may change.

        A directory is known by its path alone.
        """
        if self._loaded is None:
            return None
        settings = {"temperature": self.temperature, "max_new_tokens": self.max_new_tokens, "thinking": self.thinking}
        return json.dumps({"transformers": self._loaded, "dtype": str(self.model.dtype), **settings}, sort_keys=True)

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        """Generate one reply; `timeout` seconds include the wait for other requests. `schema` is ignored.

        Raises `BackendError` when the reply is not complete by then, when the conversation does not fit the model,
        when the model has been put into training mode, and when generation fails.
        """
        now = time.monotonic()
        return self._collector.ask(_Request(list(messages), role, now + timeout, now), timeout=timeout)

    def interrupt(self) -> None:
        """End what was asked until now, with `RequestRefusedError`."""
        self._interrupted = time.monotonic()

    def _answer(self, requests: Sequence[_Request]) -> Iterator[tuple[int, Reply | Exception]]:
        if self.model.training:
            raise BackendError("the mentor's model is in training mode; give the mentor a model of its own")
        rows: dict[int, Row] = {}
        for index, request in enumerate(requests):
            row = outcome_of(partial(self._row, request))
            if request.asked <= self._interrupted:
                yield index, RequestRefusedError(_INTERRUPTED)
            elif isinstance(row, Row):
                rows[index] = row
            else:
                yield index, row
        waiting = sorted(rows, key=lambda index: len(rows[index].ids))
        while waiting:
            batch = [waiting.pop(0)]
            while waiting and padded_tokens([rows[i] for i in (*batch, waiting[0])]) <= self._max_padded_tokens:
                batch.append(waiting.pop(0))
            yield from self._answer_rows({index: rows[index] for index in batch})

    def _row(self, request: _Request) -> Row:
        thinking = self.thinking.get(request.role)
        switch = {} if thinking is None else {"enable_thinking": thinking}
        ids = self.tokenizer.apply_chat_template(
            request.messages, add_generation_prompt=True, return_dict=True, **switch
        )["input_ids"]
        length = self._max_length()
        if len(ids) >= length:
            raise RequestRefusedError(f"the conversation has {len(ids)} tokens; the mentor has {length} in all")
        return Row(tuple(ids), min(length - len(ids), self.max_new_tokens), request.deadline)

    def _answer_rows(self, rows: dict[int, Row], *, halve: bool = True) -> Iterator[tuple[int, Reply | Exception]]:
        if self._collector.stopping:
            raise BackendError("the program ends")
        replies = outcome_of(partial(self._generate, list(rows.values())))
        if isinstance(replies, torch.OutOfMemoryError) and halve and len(rows) > 1:
            del replies  # its traceback holds the tensors of the batch
            yield from self._answer_halves(rows)
        elif isinstance(replies, Exception):
            reason = f"the local mentor failed: {describe(replies)}"
            yield from ((index, BackendError(reason)) for index in rows)
        else:
            yield from zip(rows, replies, strict=True)

    def _answer_halves(self, rows: dict[int, Row]) -> Iterator[tuple[int, Reply | Exception]]:
        indices = list(rows)
        halves = [indices[: len(rows) // 2], indices[len(rows) // 2 :]]
        self._max_padded_tokens = min(padded_tokens([rows[index] for index in half]) for half in halves)
        logger.warning(
            "trl-mentor: "
            "the mentor's batch of %d conversations did not fit into the memory: smaller ones from now on. Set "
            "max_batch_size or the mentor's token limit lower.",
            len(rows),
        )
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        for half in halves:
            yield from self._answer_rows({index: rows[index] for index in half}, halve=False)

    def _generate(self, rows: Sequence[Row]) -> list[Reply | BackendError]:
        ends = self.model.generation_config.eos_token_id
        began = time.monotonic()
        stops = {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id} - {None}
        padding = self.tokenizer.pad_token_id
        outputs = generate_padded(
            self.model,
            rows,
            ends=stops,
            padding=padding if padding is not None else min(stops, default=0),
            temperature=self.temperature,
            generator=self._generator,
            stopping=lambda: self._collector.stopping or self._interrupted >= began,
        )
        interrupted = self._interrupted >= began
        return [
            RequestRefusedError(_INTERRUPTED) if interrupted and end is End.DEADLINE else self._reply(row, ids, end)
            for row, (ids, end) in zip(rows, outputs, strict=True)
        ]

    def _reply(self, row: Row, ids: list[int], end: End) -> Reply | BackendError:
        if end is End.DEADLINE:
            return BackendError(f"the local mentor ran out of time after {len(ids)} tokens")
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return Reply(text, Usage(len(row.ids), len(ids)), truncated=end is End.LIMIT)

    def _max_length(self) -> int:
        """Tokens of prompt and reply together that the model's positions allow."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or 2**31


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
