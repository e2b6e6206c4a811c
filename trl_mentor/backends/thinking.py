"""Which agents think: the check of the setting that several backends share."""

from __future__ import annotations

from collections.abc import Mapping

from trl_mentor.errors import ConfigError
from trl_mentor.records import Role

Thinking = Mapping[Role, bool] | Mapping[str, bool]
"""On or off by role, or by its name."""


def checked_thinking(thinking: Thinking | None) -> dict[Role, bool]:
    """Thinking on or off by role; a role that is missing does as its model does."""
    roles = [role.value for role in Role]
    for role, value in (thinking or {}).items():
        if role not in roles or not isinstance(value, bool):
            raise ConfigError(f"thinking has {role!r}: {value!r}; expected true or false for one of {roles}")
    return {Role(role): value for role, value in (thinking or {}).items()}
