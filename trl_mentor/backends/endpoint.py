"""What a mentor endpoint may be told: its settings checked, its key read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from trl_mentor.errors import ConfigError

PLACEHOLDER_KEY = "no-key-needed"

_LONGEST_NAME = 40
"""Characters of a variable's name above which it looks more like a key."""


def read_key(name: str | None) -> str:
    if name is None:
        return PLACEHOLDER_KEY
    if name not in os.environ:
        plain = len(name) <= _LONGEST_NAME and re.fullmatch(r"[A-Z]{1,10}|[A-Z][A-Z0-9]*(_[A-Z0-9]+)+", name)
        shown = name if plain else "(not shown: it may be a key itself)"
        raise ConfigError(
            f"the environment variable {shown} is not set; api_key_env must be the name of the variable that holds "
            "the mentor's key (a server of your own, which needs none, is given as base_url)"
        )
    key = os.environ[name].strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"the environment variable {name} must hold a key of printable ASCII characters, and does not"
        )
    return key


def root_of(base_url: str | None) -> str:
    """The root of the API without a slash at the end; without `base_url` that of OpenAI, or `OPENAI_BASE_URL`."""
    return (base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1").rstrip("/")


def billing_headers() -> dict[str, str]:
    """Which organization and project of OpenAI's pay, where the variables of its own client say so."""
    names = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
    given = {header: os.environ.get(variable, "").strip() for header, variable in names.items()}
    return {header: value for header, value in given.items() if value}


def check_numbers(temperature: float, max_tokens: int, max_retries: int) -> None:
    if not 0 <= temperature <= 2:
        raise ConfigError(f"the mentor's temperature is {temperature}; it must be from 0 to 2")
    if max_tokens < 1:
        raise ConfigError(f"the mentor's max_tokens is {max_tokens}; it must be at least 1")
    if max_retries < 0:
        raise ConfigError(f"the mentor's max_retries is {max_retries}; it must be 0 or more")


def check_base_url(base_url: str | None) -> None:
    if base_url is None:
        return
    try:
        parts = urlsplit(base_url)
        _ = parts.port  # read only when it is asked for
    except ValueError:
        # Neither the URL nor what is wrong with it is shown: a password may stand in it.
        raise ConfigError("base_url is no URL; expected one such as http://localhost:8000/v1") from None
    if "@" in base_url or parts.query:
        raise ConfigError("base_url must hold no user name, password or query; name the key's variable in api_key_env")
    if "," in base_url:
        raise ConfigError(
            f"base_url is {base_url!r}; give several endpoints as several backends, Mentor([one, other])"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"base_url is {base_url!r}; expected a URL such as http://localhost:8000/v1")


def checked_body(extra_body: Mapping[str, Any] | None) -> dict[str, Any]:
    body = dict(extra_body or {})
    if not isinstance(body.get("chat_template_kwargs", {}), Mapping):
        raise ConfigError(
            f"extra_body sets chat_template_kwargs to {body['chat_template_kwargs']!r}; give a JSON object"
        )
    if taken := sorted({"messages", "model", "stream"} & body.keys()):
        raise ConfigError(f"extra_body sets {', '.join(taken)}, which the backend sets itself; remove it")
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"extra_body must be plain JSON: {error}") from None
    return body


def with_thinking(body: Mapping[str, Any], switch: bool | None) -> dict[str, Any]:
    """The body of a request with thinking on or off, or as the endpoint does it for None."""
    if switch is None:
        return dict(body)
    return {**body, "chat_template_kwargs": {**body.get("chat_template_kwargs", {}), "enable_thinking": switch}}
