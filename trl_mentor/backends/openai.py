"""A mentor behind any OpenAI-compatible chat endpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trl_mentor.backends.api import API, Tries
from trl_mentor.backends.completion import read_reply
from trl_mentor.backends.endpoint import (
    billing_headers,
    check_base_url,
    check_numbers,
    checked_body,
    read_key,
    root_of,
    with_thinking,
)
from trl_mentor.backends.failures import Failure
from trl_mentor.backends.thinking import Thinking, checked_thinking
from trl_mentor.errors import ConfigError
from trl_mentor.records import Message, Reply, Role

logger = logging.getLogger(__name__)


class OpenAIBackend:
    """Asks `model` at `base_url`; safe to call from any number of threads.

    `base_url` is the root of the API, usually ending in `/v1`; without it that is OpenAI's, or the URL in
    `OPENAI_BASE_URL`. `api_key_env` is the name of the environment variable with the key; it defaults to
    `OPENAI_API_KEY` only when `base_url` is not given. A `base_url` without `api_key_env` is sent a placeholder, and
    nothing from the `OPENAI_*` variables reaches it. The key is in no repr, pickle or error; pickles read it anew.

    One thread runs an event loop for all requests, because a socket's own timeout does not end a reply that arrives
    drop by drop, and some endpoints send blank lines while a request waits. `max_retries` counts further tries after
    a lost connection or a status of 408, 409, 429 or 5xx; all of them share the one timeout of the call.

    `extra_body` is merged into the JSON of every request; `thinking` turns thinking on or off by role, through
    `enable_thinking` of the chat template. A schema goes along as `response_format`, until a request succeeds only
    without one, and never for a role whose thinking is on: there it may leave no room for the thinking. Answers of
    more than 8 MB and redirects are failures. Raises `ConfigError` for settings outside their range and for a
    variable that is not set.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        temperature: float = 0.7,
        max_tokens: int = 4096,
        max_retries: int = 2,
        extra_body: Mapping[str, Any] | None = None,
        thinking: Thinking | None = None,
    ) -> None:
        check_numbers(temperature, max_tokens, max_retries)
        check_base_url(base_url)
        check_base_url(root_of(base_url))
        if not model:
            raise ConfigError("the mentor's model name is empty; give the name under which the endpoint serves it")
        key_name = "OPENAI_API_KEY" if base_url is None and api_key_env is None else api_key_env
        self.model = model
        self._settings: dict[str, Any] = {
            "base_url": base_url,
            "api_key_env": api_key_env,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "max_retries": max_retries,
            "extra_body": checked_body(extra_body),
            "thinking": checked_thinking(thinking),
        }
        self._api = API(
            root_of(base_url),
            read_key(key_name),
            model=model,
            key_name=key_name,
            max_retries=max_retries,
            headers=billing_headers() if base_url is None else None,
        )
        # Whether a `response_format` was ever taken, and whether one was refused; only the request loop changes them.
        self._schemas_taken = self._schemas_refused = False

    def __repr__(self) -> str:
        shown = {name: self._settings[name] for name in ("base_url", "api_key_env", "temperature", "max_tokens")}
        return (
            f"OpenAIBackend({', '.join([repr(self.model), *(f'{name}={value!r}' for name, value in shown.items())])})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.model, **self._settings), ()

    @property
    def endpoint(self) -> str:
        """The root of the API, as logs and records name it."""
        return self._api.url

    @property
    def identity(self) -> str:
        """All that determines a reply besides the request; not the address, which may change while the model stays."""
        names = ("temperature", "max_tokens", "extra_body", "thinking")
        return json.dumps({"model": self.model, **{name: self._settings[name] for name in names}}, sort_keys=True)

    def chat(
        self, messages: Sequence[Message], *, role: Role, timeout: float, schema: Mapping[str, Any] | None = None
    ) -> Reply:
        """Send one chat request; `timeout` seconds hold for all its tries together.

        Raises `BackendError` if the request fails or is not complete by then. A reply without content has the text
        ""; the usage is 0 where the endpoint does not count.
        """
        return self._api.run(lambda tries: self._answer(messages, role, schema, tries), timeout)

    def close(self) -> None:
        """End requests in flight and release the connections; later calls raise `BackendError`."""
        self._api.close()

    async def _answer(
        self, messages: Sequence[Message], role: Role, schema: Mapping[str, Any] | None, tries: Tries
    ) -> Reply | Failure:
        """Ask with the schema if there is one; without it where the endpoint takes the request only so."""
        thinks = self._settings["thinking"].get(role)
        body = with_thinking(self._settings["extra_body"], thinks)
        if schema is None or thinks or self._schemas_refused or "response_format" in body:
            return await self._send(messages, body, tries)
        form = {"type": "json_schema", "json_schema": {"name": role.value, "strict": True, "schema": dict(schema)}}
        outcome = await self._send(messages, {**body, "response_format": form}, tries)
        if isinstance(outcome, Reply):
            self._schemas_taken = True
            return outcome
        if not outcome.may_come_from_the_schema(accepted_before=self._schemas_taken):
            return outcome
        plain = await self._send(messages, body, tries)
        if isinstance(plain, Reply) and not self._schemas_refused:
            self._schemas_refused = True
            logger.info(
                "%s takes requests only without response_format and is asked for plain text from now on: HTTP %s",
                self.endpoint,
                outcome.status,
            )
        return plain

    async def _send(self, messages: Sequence[Message], body: Mapping[str, Any], tries: Tries) -> Reply | Failure:
        # OpenAI's newer models refuse `max_tokens`; most other servers know nothing else.
        limit = "max_tokens" if self._settings["base_url"] else "max_completion_tokens"
        asked = {"model": self.model, "messages": list(messages), "temperature": self._settings["temperature"]}
        whole = {**asked, limit: self._settings["max_tokens"], **body}
        outcome = await self._api.post("/chat/completions", whole, self._read, tries)
        return replace(outcome, requests=tries.made) if isinstance(outcome, Reply) else outcome

    def _read(self, completion: object) -> Reply:
        reply = read_reply(completion)
        return replace(reply, text=self._api.hide(reply.text), thinking=self._api.hide(reply.thinking))
