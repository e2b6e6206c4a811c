"""A mentor on a vLLM engine of its own, which this process starts and holds."""

from __future__ import annotations

import importlib.util
import json
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from trl_mentor.backends.batching import Collector
from trl_mentor.backends.thinking import Thinking, checked_thinking
from trl_mentor.errors import ConfigError, RequestRefusedError
from trl_mentor.mentor_pool import outcome_of
from trl_mentor.records import Message, Reply, Role, Usage

MAX_BATCH = 256
"""Requests of one call to the engine, which schedules them itself."""

ENGINE: Mapping[str, Any] = {
    "gpu_memory_utilization": 0.3,
    "max_model_len": -1,
    "enable_prefix_caching": True,
    "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
}
"""What differs from vLLM's defaults: room for the training, as much context as fits, prefixes kept, and no white space
between the parts of a JSON object, of which weak models write without end."""

_HELD: weakref.WeakSet[VLLMBackend] = weakref.WeakSet()
"""A property of the process, whoever asks: it can hold one engine, or a trainer's."""


def engines_held() -> int:
    """How many engines this process holds for mentors."""
    return len(_HELD)


def require_vllm() -> None:
    """Raise `ConfigError` if vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "a mentor on vLLM in this process needs vLLM, which is not installed: pip install vllm (for a CPU see "
            "docs/local_mentors.md). Or serve the mentor and use mentor_backend='openai' (OpenAIBackend), or load it "
            "with mentor_backend='transformers' (TransformersBackend)"
        )


def refuse_second_engine() -> None:
    """Raise `ConfigError` if an engine runs inside this process, as that of a colocated trainer does."""
    from vllm.distributed.parallel_state import model_parallel_is_initialized

    if model_parallel_is_initialized():
        raise ConfigError(
            "this process holds a vLLM engine already, as a trainer with vllm_mode='colocate' does, and cannot hold "
            "the mentor's too; serve the mentor (vllm serve MODEL) and use mentor_backend='openai' (OpenAIBackend)"
        )


@dataclass(frozen=True, slots=True)
class _Request:
    messages: list[Message]
    role: Role
    schema: Mapping[str, Any] | None


class VLLMBackend:
    """Generates with `model`, a name or directory; concurrent requests share one call to the engine.

    `engine` are further arguments of `vllm.LLM`, for example `gpu_memory_utilization` (here 0.3, as the policy is
    trained on the same device), `max_model_len`, `quantization` or `tensor_parallel_size`. Prefixes are cached, and
    `seed` is the engine's own. `thinking` says by role whether `enable_thinking` of the chat template is on or off.
    A schema is enforced, except for a role that thinks: there it would leave no room for the thinking.

    The engine finishes what it began, also when the caller's time is over. It must not share a process with the
    engine of a colocated trainer; such a mentor is served instead (`vllm serve`).

    Raises `ConfigError` if vLLM is not installed, beside such an engine, for a tokenizer without a chat template and
    for settings outside their range.
    """

    def __init__(
        self,
        model: str,
        *,
        temperature: float = 0.7,
        max_tokens: int = 4096,
        thinking: Thinking | None = None,
        seed: int = 0,
        **engine: Any,
    ) -> None:
        if not 0 <= temperature <= 2:
            raise ConfigError(f"the mentor's temperature is {temperature}; it must be from 0 to 2")
        if max_tokens < 1:
            raise ConfigError(f"the mentor's max_tokens is {max_tokens}; it must be at least 1")
        self.thinking = checked_thinking(thinking)
        self.model, self.temperature, self.max_tokens = model, temperature, max_tokens
        self._engine = {**ENGINE, **engine, "seed": seed}
        require_vllm()
        refuse_second_engine()
        from vllm import LLM

        self._llm = LLM(model, **self._engine)
        self._tokenizer = self._llm.get_tokenizer()
        if self._tokenizer.chat_template is None:
            raise ConfigError(f"the mentor's model {model!r} has no chat template; choose an instruction-tuned one")
        self._collector: Collector[_Request, Reply] = Collector(self._answer, size=MAX_BATCH)
        _HELD.add(self)

    def __repr__(self) -> str:
        return f"VLLMBackend({self.model!r})"

    @property
    def identity(self) -> str:
        """What a reply depends on beside its conversation, as JSON. A directory is known by its path alone."""
        settings = {"temperature": self.temperature, "max_tokens": self.max_tokens, "thinking": self.thinking}
        return json.dumps({"vllm": self.model, "engine": self._engine, **settings}, sort_keys=True, default=str)

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        """Generate one reply; `timeout` seconds include the wait for other requests.

        Raises `BackendError` when the reply is not there by then, when the conversation does not fit the engine, and
        when the engine fails.
        """
        return self._collector.ask(_Request(list(messages), role, schema), timeout=timeout)

    def _answer(self, requests: Sequence[_Request]) -> Iterator[tuple[int, Reply | Exception]]:
        prompts = {}
        for index, request in enumerate(requests):
            ids = outcome_of(partial(self._ids, request))
            if isinstance(ids, Exception):
                yield index, ids
            else:
                prompts[index] = ids
        if not prompts:
            return
        outputs = self._llm.generate(
            [{"prompt_token_ids": ids} for ids in prompts.values()],
            [self._params(requests[index], len(ids)) for index, ids in prompts.items()],
            use_tqdm=False,
        )
        yield from zip(prompts, map(_reply, outputs), strict=True)

    def _ids(self, request: _Request) -> list[int]:
        thinking = self.thinking.get(request.role)
        switch = {} if thinking is None else {"enable_thinking": thinking}
        ids: list[int] = self._tokenizer.apply_chat_template(
            request.messages, add_generation_prompt=True, return_dict=True, **switch
        )["input_ids"]
        if len(ids) >= self._length():
            raise RequestRefusedError(
                f"the conversation has {len(ids)} tokens; the mentor has {self._length()} in all"
            )
        return ids

    def _params(self, request: _Request, prompt_tokens: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        held = request.schema is not None and not self.thinking.get(request.role)
        return SamplingParams(
            temperature=self.temperature,
            max_tokens=min(self.max_tokens, self._length() - prompt_tokens),
            structured_outputs=StructuredOutputsParams(json=dict(request.schema or {})) if held else None,
        )

    def _length(self) -> int:
        """Tokens of prompt and reply together that the engine takes."""
        return int(self._llm.model_config.max_model_len)


def _reply(output: Any) -> Reply:
    (completion,) = output.outputs
    usage = Usage(len(output.prompt_token_ids), len(completion.token_ids), output.num_cached_tokens or 0)
    return Reply(completion.text, usage, truncated=completion.finish_reason == "length")
