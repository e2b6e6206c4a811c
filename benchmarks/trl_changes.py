"""What changed between two TRL releases in exactly the parts that mentoring relies on.

    python benchmarks/trl_changes.py 1.16.0          # against the newest release of the package index
    python benchmarks/trl_changes.py 1.14.2 1.16.0
    python benchmarks/trl_changes.py old/ new/       # offline: directories that hold the package `trl`

Reads sources and imports none of them. Shows a table of the parts and a diff of each one that changed. Exits with 1 if
`trl_mentor` would refuse NEW, and with 2 if one of the two cannot be had.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from trl_mentor.contract import (
    ATTRIBUTES,
    CALLS,
    PARAMETERS,
    breaches,
    refuse_untested,
    returned_names,
    stored_attributes,
)
from trl_mentor.errors import ContractError

STYLES = {"unchanged": "dim", "changed": "yellow", "gone": "red", "new": "green"}


@dataclass(frozen=True, slots=True)
class Release:
    """The sources of one TRL release that matter here."""

    version: str | None
    """None for a directory without the package's metadata."""
    methods: Mapping[str, ast.FunctionDef]
    """Methods of `GRPOTrainer`."""
    sources: Mapping[str, str]
    """Their text."""
    fields: Mapping[str, str]
    """Fields of `GRPOConfig`, each as annotation and default."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that mentoring relies on, before and after; None where it does not exist."""

    kind: str
    name: str
    before: str | None
    after: str | None
    same: bool
    """Whether the code is the same, comments and layout aside."""

    @property
    def status(self) -> str:
        if self.after is None:
            return "gone"
        if self.before is None:
            return "new"
        return "unchanged" if self.same else "changed"


def main() -> int:
    parser = argparse.ArgumentParser(description="Show what changed in the parts of TRL that mentoring relies on.")
    parser.add_argument("old", help="a version, or a directory that holds the package trl")
    parser.add_argument("new", nargs="?", help="the same; default: the newest version of the package index")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            old, new = (read(located(which, Path(folder) / side)) for side, which in vars(given).items())
        except (OSError, subprocess.CalledProcessError, SyntaxError) as error:
            parser.exit(2, f"{parser.prog}: error: {error}\n")
    console = Console(width=None if sys.stdout.isatty() else 140)
    show(console, old, new, list(compare(old, new)))
    refusals = list(refused(new))
    for reason in refusals:
        console.print(Text(f"refused: {reason}", "red"))
    if not refusals:
        console.print("accepted; whether mentoring works with it is for the tests to say: make test-newest")
    return 1 if refusals else 0


def located(which: str | None, folder: Path) -> Path:
    """The directory that was given, or the release that pip downloads into `folder`, unpacked."""
    if which is not None and Path(which).is_dir():
        return Path(which)
    wanted = "trl" if which is None else f"trl=={which}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, "--dest", str(folder), wanted], check=True)
    (wheel,) = folder.glob("trl-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def read(folder: Path) -> Release:
    source = (folder / "trl" / "trainer" / "grpo_trainer.py").read_text(encoding="utf-8")
    trainer = class_in(source, "GRPOTrainer")
    methods = {node.name: node for node in trainer.body if isinstance(node, ast.FunctionDef)}
    lines = source.splitlines()
    versions = [path.name.removeprefix("trl-").removesuffix(".dist-info") for path in folder.glob("trl-*.dist-info")]
    fields: dict[str, str] = {}
    for file, name in (("base_config.py", "_BaseConfig"), ("grpo_config.py", "GRPOConfig")):
        config = class_in((folder / "trl" / "trainer" / file).read_text(encoding="utf-8"), name)
        fields |= {
            ast.unparse(node.target): default_of(node) for node in config.body if isinstance(node, ast.AnnAssign)
        }
    return Release(
        version=versions[0] if len(versions) == 1 else None,
        methods=methods,
        sources={name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for name, node in methods.items()},
        fields=fields,
    )


def class_in(source: str, name: str) -> ast.ClassDef:
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise OSError(f"no class {name} at the top of the module that should define it")


def default_of(field: ast.AnnAssign) -> str:
    """Annotation and default of a dataclass field, without its help text."""
    if isinstance(field.value, ast.Call):
        given = [f"{item.arg}={ast.unparse(item.value)}" for item in field.value.keywords if item.arg != "metadata"]
        return f"{ast.unparse(field.annotation)}, {', '.join(given)}"
    return ast.unparse(field)


def compare(old: Release, new: Release) -> Iterator[Part]:
    """Every part that mentoring relies on; of the config fields, those that differ."""
    callers = ("_generate", "_calculate_rewards")
    used = (name for release in (old, new) for caller in callers for name in methods_used(release, caller))
    seam = (name for name in (*PARAMETERS, *CALLS) if name in {*old.methods, *new.methods})
    for name in dict.fromkeys((*seam, *used)):
        before, after = (release.methods.get(name) for release in (old, new))
        same = before is not None and after is not None and code(before) == code(after)
        yield Part("method", name, old.sources.get(name), new.sources.get(name), same)
    yield text_part("return", "_generate", returned(old), returned(new))
    for name in ATTRIBUTES:
        yield text_part("attribute", name, *(assignments(release, name) for release in (old, new)))
    for name in sorted({*old.fields, *new.fields}):
        if old.fields.get(name) != new.fields.get(name):
            yield text_part("config", name, old.fields.get(name), new.fields.get(name))


def text_part(kind: str, name: str, before: str | None, after: str | None) -> Part:
    return Part(kind, name, before, after, before == after)


def methods_used(release: Release, caller: str) -> list[str]:
    """Methods of the trainer that one of them calls or passes on, in order of their first use."""
    nodes = ast.walk(release.methods.get(caller, ast.Pass()))
    names = [ast.unparse(node).removeprefix("self.") for node in nodes if isinstance(node, ast.Attribute)]
    return [name for name in dict.fromkeys(names) if name in release.methods]


def code(method: ast.FunctionDef) -> str:
    """A method as text without comments, layout and docstring."""
    body = method.body[1:] if ast.get_docstring(method) is not None else method.body
    return "\n".join(ast.unparse(part) for part in (method.args, *method.decorator_list, *body))


def returned(release: Release) -> str | None:
    definition = release.methods.get("_generate")
    return None if definition is None else "\n".join(returned_names(definition))


def assignments(release: Release, attribute: str) -> str | None:
    """The statements of `__init__` that set an attribute, or None if there are none."""
    nodes = ast.walk(release.methods.get("__init__", ast.Pass()))
    statements = [node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)]
    return "\n".join(ast.unparse(node) for node in statements if attribute in stored_attributes(node)) or None


def refused(new: Release) -> Iterator[str]:
    """Why `trl_mentor` would refuse this release, as far as TRL's own sources tell."""
    if new.version is not None:
        try:
            refuse_untested(new.version)
        except ContractError as error:
            yield str(error)
    of_trl = {*PARAMETERS, *CALLS, "__init__"} - {"_load_callback_state"}
    yield from breaches({name: new.methods.get(name) for name in sorted(of_trl)})


def show(console: Console, old: Release, new: Release, parts: list[Part]) -> None:
    table = Table("part", "name", "status", title=f"TRL {old.version or 'old'} to {new.version or 'new'}")
    for part in parts:
        table.add_row(part.kind, part.name, part.status, style=STYLES[part.status])
    console.print(table)
    for part in parts:
        if part.status != "unchanged":
            before, after = ((text or "").splitlines() for text in (part.before, part.after))
            lines = difflib.unified_diff(before, after, f"old {part.kind} {part.name}", "new", lineterm="")
            console.print(Syntax("\n".join(lines), "diff", background_color="default", word_wrap=True))


if __name__ == "__main__":
    sys.exit(main())
