"""What this package relies on in TRL's private interface, and the probe that refuses anything else.

Nothing here imports TRL: the probe reads the source of the class it is given, and `breaches` also takes source that is
not installed at all.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from trl_mentor.errors import ContractError


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
    "_get_per_token_logps_and_entropies": ("self", "model", "..."),
    "_compute_loss": ("self", "model", "inputs"),
    "_save_checkpoint": ("self", "model", "trial"),
    "_load_callback_state": ("self",),  # of transformers' Trainer
}
"""The private methods that the trainer overrides or calls, and their parameters; "..." stands for any further ones,
which then differ between the tested versions."""

CALLS = {
    "_generate_and_score_completions": (
        "self._generate(prompts)",
        "self._calculate_rewards(inputs, prompts, completions, completion_ids_list)",
    ),
    "compute_loss": ("self._compute_loss(model, inputs)",),
}
"""Calls that must stand in a method, each once: an override that TRL no longer calls would change nothing, unseen."""

SCORER = "self._get_per_token_logps_and_entropies"
READ_AFTER_SCORING = ("inputs['advantages']", "inputs.get('old_per_token_logps')")
"""What `_compute_loss` must read, and only after its one call of `SCORER`: by then the trainer has replaced it."""

ATTRIBUTES = (
    "_is_vlm",
    "_metrics",
    "_pending_extra_logs",
    "_pending_metrics",
    "_tokenizer",
    "eos_token_ids",
    "log_completions",
    "max_completion_length",
    "num_generations",
    "reward_func_names",
    "reward_weights",
)
"""What `GRPOTrainer.__init__` must set, because the trainer reads or replaces it."""


CARD = ("_name", "_paper")
"""What `create_model_card` must read, because the trainer replaces it."""


def supported_trl() -> SpecifierSet:
    """The TRL versions in which the seam was tested, as this package's own requirements state them.

    Read from the metadata of the installed package or, in a source tree that is not installed, from its `setup.cfg`.
    Raises `ContractError` if there is neither.
    """
    try:
        lines = metadata.requires("trl-mentor") or []
    except metadata.PackageNotFoundError:
        setup = ConfigParser()
        setup.read(Path(__file__).parent.parent / "setup.cfg", encoding="utf-8")
        lines = setup.get("options", "install_requires", fallback="").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    found = [item.specifier for item in requirements if item.name == "trl"]
    if not found:
        raise ContractError(
            "trl_mentor was copied here without its metadata, which say which versions of TRL it was tested with; "
            "install it: pip install trl-mentor"
        )
    return found[0]


SUPPORTED_TRL = supported_trl()


def check_contract(trainer_class: type, *, version: str | None = None) -> None:
    """Raise `ContractError` unless `trainer_class` has the interface that the seam was written against.

    Checks that Unsloth has not rewritten the class, that the version of TRL (default: the installed one) is in the
    tested range, and everything that `breaches` looks for.
    """
    refuse_unsloth(trainer_class)
    if version is None:
        try:
            version = metadata.version("trl")
        except metadata.PackageNotFoundError:
            version = "unknown"
    refuse_untested(version)
    methods = (*PARAMETERS, *(CALLS.keys() - PARAMETERS.keys()), "__init__", "create_model_card")
    found = list(breaches({name: _definition(trainer_class, name) for name in methods}))
    if found:
        raise ContractError(
            f"the private interface of {trainer_class.__name__} in TRL {version} is not the one that was tested "
            f"(trl{SUPPORTED_TRL}): {'; '.join(found)}. If something in this process patches TRL, leave it out; if "
            "not, install a tested version"
        )


def refuse_untested(version: str) -> None:
    """Raise `ContractError` for a TRL version outside the tested range."""
    try:
        tested = Version(version) in SUPPORTED_TRL
    except InvalidVersion:
        tested = False
    if not tested:
        raise ContractError(
            f"mentoring was tested with trl{SUPPORTED_TRL} only, got TRL {version}; install a tested version: "
            f"pip install 'trl{SUPPORTED_TRL}'"
        )


def refuse_unsloth(trainer_class: type) -> None:
    """Raise `ContractError` if the class, one of its bases or one of the private methods in use is Unsloth's."""
    methods = (inspect.unwrap(getattr(trainer_class, name)) for name in PARAMETERS if hasattr(trainer_class, name))
    for item in (*trainer_class.__mro__, *methods):
        origin = f"{getattr(item, '__module__', '')}.{getattr(item, '__qualname__', '')}"
        if "unsloth" in origin.lower():
            raise ContractError(
                f"{trainer_class.__name__} is TRL's trainer as rewritten by Unsloth ({origin}), whose copies of the "
                "methods that mentoring hooks into are not the tested ones; remove every import of unsloth from this "
                "process, start it anew, and load the model with transformers (and peft)"
            )


def breaches(methods: Mapping[str, ast.FunctionDef | None]) -> Iterator[str]:
    """Where `GRPOTrainer` departs from what the seam relies on, in words.

    `methods` holds the definitions of the methods in `PARAMETERS` and `CALLS`, of `__init__` and of
    `create_model_card`, None for one that is gone or whose source cannot be read. A method that is not among the keys
    is not looked at.
    """
    for name, definition in methods.items():
        if definition is None:
            yield f"{name} is gone, or its source cannot be read"
            continue
        parameters = parameters_of(definition)
        if not _fits(parameters, PARAMETERS.get(name, ("...",))):
            yield f"{name} takes {parameters}, expected {PARAMETERS[name]}"
        for call in CALLS.get(name, ()):
            if calls_of(definition).count(call) != 1:
                yield f"{name} does not call {call} once"
        if name == "_generate" and returned_names(definition) != Generated._fields:
            yield f"_generate returns {returned_names(definition)}, expected {Generated._fields}"
        if name == "_compute_loss":
            yield from (f"_compute_loss does not read {item} after scoring alone" for item in _read_early(definition))
        if name == "__init__":
            missing = sorted(set(ATTRIBUTES) - stored_attributes(definition))
            yield from (f"__init__ does not set self.{attribute}" for attribute in missing)
        if name == "create_model_card":
            unread = sorted(set(CARD) - attributes_of(definition, ast.Load))
            yield from (f"create_model_card does not read self.{attribute}" for attribute in unread)


def parameters_of(definition: ast.FunctionDef) -> tuple[str, ...]:
    """Names of all parameters of a function, in order."""
    return tuple(node.arg for node in ast.iter_child_nodes(definition.args) if isinstance(node, ast.arg))


def calls_of(definition: ast.FunctionDef) -> list[str]:
    """Calls of methods of `self` in a function, as text."""
    calls = (node for node in ast.walk(definition) if isinstance(node, ast.Call))
    return [ast.unparse(call) for call in calls if isinstance(call.func, ast.Attribute) and _is_self(call.func.value)]


def returned_names(definition: ast.FunctionDef) -> tuple[str, ...]:
    """Names in the last return statement of a function; empty if it does not return a tuple of names."""
    returns = [node for node in ast.walk(definition) if isinstance(node, ast.Return)]
    last = max(returns, key=lambda node: node.lineno, default=None)
    if last is None or not isinstance(last.value, ast.Tuple):
        return ()
    return tuple(element.id for element in last.value.elts if isinstance(element, ast.Name))


def stored_attributes(node: ast.AST) -> set[str]:
    """Attributes of `self` that a method, or a statement, assigns."""
    return attributes_of(node, ast.Store)


def attributes_of(node: ast.AST, use: type[ast.expr_context]) -> set[str]:
    """Attributes of `self` of which a method, or a statement, makes this use."""
    attributes = (item for item in ast.walk(node) if isinstance(item, ast.Attribute) and _is_self(item.value))
    return {item.attr for item in attributes if isinstance(item.ctx, use)}


def _read_early(definition: ast.FunctionDef) -> list[str]:
    """What of `READ_AFTER_SCORING` is not read, or not only after one call of `SCORER`."""
    nodes = [(ast.unparse(node), node) for node in ast.walk(definition) if isinstance(node, ast.expr)]
    ends = [
        node.end_lineno or 0 for _, node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == SCORER
    ]
    lines = {item: [node.lineno for text, node in nodes if text == item] for item in READ_AFTER_SCORING}
    return [item for item, read in lines.items() if len(ends) != 1 or not read or min(read) <= ends[0]]


def _fits(parameters: tuple[str, ...], expected: tuple[str, ...]) -> bool:
    if expected[-1] == "...":
        return parameters[: len(expected) - 1] == expected[:-1]
    return parameters == expected


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _definition(trainer_class: type, name: str) -> ast.FunctionDef | None:
    """The definition of a method as it is bound now, or None if there is none to read."""
    try:
        source = inspect.getsource(getattr(trainer_class, name))
        tree = ast.parse(f"if True:\n{source}" if source[0].isspace() else source)
    except (AttributeError, OSError, TypeError, SyntaxError):
        return None
    return next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), None)
