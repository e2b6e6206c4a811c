"""What this package relies on in TRL's private interface, and the probe that refuses anything else."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any, NamedTuple

import trl
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trl_mentor.errors import ContractError

SUPPORTED_TRL = SpecifierSet(">=1.14.2,!=1.15.*,<1.17")
"""The range in which the seam was tested; the same as in the package's requirements."""


class Generated(NamedTuple):
    """What `GRPOTrainer._generate` returns: per-row lists of one rank, dictionaries or None."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    tool_mask: list[list[int]] | None
    completions: list[Any]
    logprobs: list[list[float]] | None
    extra_fields: dict[str, Any]
    images: list[Any] | None
    tool_images: list[Any]


PARAMETERS = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_generate": ("self", "prompts"),
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
    "_tokenize_prompts": ("self", "prompts"),
    "_load_callback_state": ("self",),
}
"""The private methods that the trainer overrides or calls, and their parameters."""


def check_contract(trainer_class: type, *, version: str = trl.__version__) -> None:
    """Raise `ContractError` unless `trainer_class` has the interface that the seam was written against.

    Checks the version of TRL, the parameters of the private methods in use, and, in the source of `_generate`, the
    names of the values it returns. A class that Unsloth has rewritten is refused by name.
    """
    if trainer_class.__name__.startswith(("Unsloth", "_Unsloth")):
        raise ContractError(
            f"{trainer_class.__name__} is TRL's trainer as rewritten by Unsloth, which replaces the methods that "
            "mentoring hooks into; import trl_mentor without Unsloth's patches"
        )
    if Version(version) not in SUPPORTED_TRL:
        raise ContractError(
            f"TRL {version} is installed, but mentoring was tested with trl{SUPPORTED_TRL} only; install such a "
            "version, for example: pip install 'trl==1.16.0'"
        )
    for name, expected in PARAMETERS.items():
        method = getattr(trainer_class, name, None)
        found = tuple(inspect.signature(method).parameters) if method is not None else None
        if found != expected:
            raise ContractError(_changed(f"{name} takes {found}, expected {expected}"))
    returned = _returned_names(trainer_class._generate)  # type: ignore[attr-defined]
    if returned != Generated._fields:
        raise ContractError(_changed(f"_generate returns {returned}, expected {Generated._fields}"))


def _returned_names(function: Any) -> tuple[str, ...]:
    """Names in the last return statement of a function; empty if it does not return a tuple of names."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
    last = max(returns, key=lambda node: node.lineno, default=None)
    if last is None or not isinstance(last.value, ast.Tuple):
        return ()
    return tuple(element.id for element in last.value.elts if isinstance(element, ast.Name))


def _changed(what: str) -> str:
    return (
        f"the private interface of GRPOTrainer in TRL {trl.__version__} is not the one that was tested: {what}. "
        f"Tested: trl{SUPPORTED_TRL}"
    )
