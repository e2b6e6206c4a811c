"""The text of a recipe, read as what anybody may have written. Needs neither TRL nor accelerate."""

from __future__ import annotations

from pathlib import Path

import yaml

from trl_mentor.errors import ConfigError

_MAX_BYTES = 2**20
_MAX_DEPTH = 64
_MAX_CHARS = 10 * _MAX_BYTES
"""Of all values of a recipe, with each alias counted as what it stands for."""


def read_recipe(path: str) -> str:
    """The text of a recipe. Raises `ConfigError` if it is too large to be one, `OSError` if it cannot be read."""
    with Path(path).open("rb") as file:
        read = file.read(_MAX_BYTES + 1)
    if len(read) > _MAX_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_BYTES:,} bytes; is it a recipe?")
    return read.decode("utf-8")


def check_yaml(text: str) -> None:
    """Raise `ConfigError` for nesting and aliases that no recipe needs and no parser survives, and for odd keys."""
    anchored: dict[str, int] = {}
    chars, open_nodes = 0, [("", 0)]
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor or "", chars))
            if len(open_nodes) > _MAX_DEPTH:
                raise ConfigError(f"the recipe nests more than {_MAX_DEPTH} levels; it needs two or three")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            anchored[anchor] = chars - before
        elif isinstance(event, yaml.AliasEvent):
            chars += anchored.get(event.anchor, 0) + 1
        elif isinstance(event, yaml.ScalarEvent):
            anchored[event.anchor or ""] = len(event.value)
            chars += len(event.value) + 1
        if chars > _MAX_CHARS:
            raise ConfigError("the aliases of the recipe (*name) stand for far too much; write the values out")
    read = yaml.safe_load(text)
    if isinstance(read, dict) and (odd := [key for key in read if not isinstance(key, str)]):
        raise ConfigError(f"the key {odd[0]!r:.40} of the recipe is no text and names no argument; remove it")
