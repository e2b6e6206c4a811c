"""How a question becomes tokens and tokens a completion, whatever the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from trl_mentor.evaluation.settings import Policy


class Prompts:
    """Renders questions with the policy's chat template; a base model, which has none, gets the plain text."""

    def __init__(self, policy: Policy) -> None:
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(policy.model, revision=policy.revision)
        if policy.chat_template is not None:
            self.tokenizer.chat_template = policy.chat_template
        self._kwargs = dict(policy.chat_template_kwargs)

    def ids(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """The prompt in tokens."""
        if self.tokenizer.chat_template is None:
            text = "\n\n".join(message["content"] for message in messages)
            return list(self.tokenizer(text)["input_ids"])
        rendered = self.tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, return_dict=True, **self._kwargs
        )
        return list(rendered["input_ids"])

    def text(self, ids: Sequence[int]) -> str:
        """The completion that these tokens are."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
