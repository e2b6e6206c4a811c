"""How a question becomes tokens and tokens a completion, whatever the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from trl_mentor.errors import ConfigError
from trl_mentor.evaluation.settings import Policy


class Prompts:
    """Renders questions with the policy's chat template; a base model, which has none, gets the plain text.

    Raises `ConfigError` where the tokenizer cannot be loaded.
    """

    def __init__(self, policy: Policy) -> None:
        try:
            found = AutoTokenizer.from_pretrained(policy.model, revision=policy.revision)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the tokenizer of {policy.model} cannot be loaded: {error}") from error
        self.tokenizer: PreTrainedTokenizerBase = found
        if policy.chat_template is not None:
            self.tokenizer.chat_template = policy.chat_template
        self._kwargs = dict(policy.chat_template_kwargs)

    def ids(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """The prompt in tokens. Raises `ConfigError` for a chat template that cannot be rendered."""
        if self.tokenizer.chat_template is None:
            text = "\n\n".join(message["content"] for message in messages)
            return list(self.tokenizer(text)["input_ids"])
        try:
            rendered = self.tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, return_dict=True, **self._kwargs
            )
        except TemplateError as error:
            raise ConfigError(f"the chat template cannot be rendered: {error}") from error
        return list(rendered["input_ids"])

    def text(self, ids: Sequence[int]) -> str:
        """The completion that these tokens are."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
