"""Prompts of the four agents, as Jinja2 files.

A template is `<domain>/<role>.jinja` with a block `user` and usually a block `system`; `<domain>/fallback.jinja` and
`<domain>/format.jinja` are hints without a model. A directory of the user's own may replace any file, `shared/...`
included, and may add domains.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jinja2
from jinja2 import meta, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trl_mentor.errors import TemplateError
from trl_mentor.packing import shorten
from trl_mentor.quoting import neutralise, read_blocks
from trl_mentor.records import Message, Role

__all__ = ["SLOTS", "PromptTemplates", "Slot", "TemplateSet", "read_blocks"]

Block = Callable[[Context], Iterator[str]]
Slot = str | None | Sequence[str]
"""Value of a slot: a text, None (only `answer`, when it is not known), or texts (`attempts`, `feedback`, `diagnosis`,
`earlier_hints`).

`feedback` holds one text for each of `attempts`, empty where there is none.
"""

SLOTS: Mapping[str, tuple[str, ...]] = {
    Role.ATTRIBUTION: ("question", "attempts", "answer", "feedback"),
    Role.GENERATION: ("question", "attempts", "diagnosis", "earlier_hints"),
    Role.JUDGMENT: ("question", "attempts", "answer", "diagnosis", "draft"),
    Role.REPAIR: ("question", "attempts", "diagnosis", "earlier_hints", "draft", "critique"),
}
"""What each role sees. The roles that write hints never see the answer.

What all of them see comes first in the packaged templates, so that an endpoint with a prefix cache computes it once.
"""

MAX_SLOT_CHARS = 24_000
"""Characters of a single text in a prompt; of a longer one its middle is left out, with a mark that says so."""

_REQUIRED: Mapping[str, tuple[str, ...]] = {
    Role.ATTRIBUTION: ("question", "attempts"),
    Role.GENERATION: ("question",),
    Role.JUDGMENT: ("question", "draft"),
    Role.REPAIR: ("question", "draft", "critique"),
}
_FULL_SAMPLE: Mapping[str, Slot] = {
    "question": "sample-question",
    "answer": "sample-answer",
    "attempts": ("sample-attempts", "another attempt"),
    "feedback": ("", "sample-feedback"),
    "diagnosis": ("sample-diagnosis", "another phrase"),
    "earlier_hints": ("sample-earlier-hint", "another hint"),
    "draft": "sample-draft",
    "critique": "sample-critique",
}
_BARE_SAMPLE: Mapping[str, Slot] = {
    **_FULL_SAMPLE,
    "answer": None,
    "attempts": (),
    "feedback": (),
    "diagnosis": (),
    "earlier_hints": (),
}

_PARTS = ("system", "user")
"""The blocks that are messages."""

_PACKAGED = Path(__file__).parent / "templates"
_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


class TemplateSet:
    """Templates of one domain by name, read once and checked at construction.

    `slots` says what each template may use and `required` what it must show. With `stand_in` a template that the
    domain lacks is that of the general one.

    Raises `TemplateError` if the domain is unknown, or if a template is missing, does not parse, uses a slot that it
    is not given, leaves out one that is required, or does what the sandbox forbids.
    """

    def __init__(
        self,
        domain: str,
        templates_dir: str | Path | None = None,
        *,
        slots: Mapping[str, Sequence[str]],
        required: Mapping[str, Sequence[str]],
        stand_in: bool = False,
    ) -> None:
        self._roots = [_PACKAGED] if templates_dir is None else [Path(templates_dir), _PACKAGED]
        _check_domain(domain, self._roots)
        self._domain, self._slots = domain, slots
        self._environment = ImmutableSandboxedEnvironment(
            loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(root) for root in self._roots]),
            undefined=jinja2.StrictUndefined,
            autoescape=False,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates = {str(name): self._load(self._file(name, stand_in=stand_in), slots[name]) for name in slots}
        for name in slots:
            self._try_out(name, required[name])

    def messages(self, name: str, slots: Mapping[str, Slot]) -> list[Message]:
        """The conversation for one template, every slot quoted. `slots` may hold more than it sees.

        Raises `TemplateError` if the template fails on these values.
        """
        template = self._templates[name]
        context = template.new_context({slot: _quoted(slots[slot]) for slot in self._slots[name]})
        try:
            blocks = _filled(template, context)
            texts = {name: "".join(blocks[name][0](context)).strip() for name in _PARTS if name in blocks}
        except _ERRORS as error:
            raise _failure(template.name, error) from error
        if not texts.get("user"):
            raise TemplateError(f"template {template.name}: there is no text in a block named 'user'; add one")
        return [{"role": name, "content": text} for name, text in texts.items() if text]

    def _file(self, name: str, *, stand_in: bool) -> str:
        own = not stand_in or any((root / self._domain / f"{name}.jinja").is_file() for root in self._roots)
        return f"{self._domain if own else 'general'}/{name}.jinja"

    def _load(self, name: str, slots: Sequence[str]) -> jinja2.Template:
        try:
            found = list(self._with_ancestors(name))
            trees = {file: tree for file, tree, _ in found}
            for file, tree, path in found:
                self._environment.get_template(file)
                _check_slots(file, tree, slots)
                if path is None or not Path(path).is_relative_to(_PACKAGED):  # whose parents may be the user's own
                    _check_blocks(file, trees)
            return self._environment.get_template(name)
        except _ERRORS as error:
            raise _failure(name, error) from error

    def _with_ancestors(self, name: str) -> Iterator[tuple[str, nodes.Template, str | None]]:
        """Name, syntax tree and path of the template and of all that it extends, imports or includes."""
        assert self._environment.loader is not None
        waiting, seen = [name], {name}
        while waiting:
            file = waiting.pop()
            source, path, _ = self._environment.loader.get_source(self._environment, file)
            tree = self._environment.parse(source, file, path)
            yield file, tree, path
            new = {reference for reference in meta.find_referenced_templates(tree) if reference} - seen
            waiting += new
            seen |= new

    def _read_fixed(self, name: str) -> str:
        try:
            text = self._load(name, ()).render().strip()
        except _ERRORS as error:
            raise _failure(name, error) from error
        if not text:
            raise TemplateError(f"template {name}: it renders to nothing; write the fixed hint into it")
        return text

    def _try_out(self, name: str, required: Sequence[str]) -> None:
        template = self._templates[name]
        try:  # as a whole, which is how Jinja2 finds blocks that are required and missing
            template.render({slot: _quoted(_BARE_SAMPLE[slot]) for slot in self._slots[name]})
        except _ERRORS as error:
            raise _failure(template.name, error) from error
        self.messages(name, _BARE_SAMPLE)
        rendered = "\n".join(message["content"] for message in self.messages(name, _FULL_SAMPLE))
        missing = [slot for slot in required if f"sample-{slot}" not in rendered]
        if missing:
            shown = ", ".join(map(repr, missing))
            raise TemplateError(f"template {template.name}: it does not show slot {shown}; add it")


class PromptTemplates(TemplateSet):
    """The templates of the four agents and the two fixed hints of one domain, checked as `TemplateSet` does."""

    def __init__(self, domain: str, templates_dir: str | Path | None = None) -> None:
        super().__init__(domain, templates_dir, slots=SLOTS, required=_REQUIRED)
        self.fallback = self._read_fixed(self._file("fallback", stand_in=False))
        """The fixed hint for a question whose every draft was refused."""
        self.format_hint = self._read_fixed(self._file("format", stand_in=True))
        """The fixed hint for a question whose every attempt misses the form that the answer should have."""


def _filled(template: jinja2.Template, context: Context) -> Mapping[str, list[Block]]:
    """The blocks of a template, own and inherited, once its root has filled in imports and ancestors.

    The root would render the two blocks as well, so it finds silent ones in their place: rendering is slow.
    """
    blocks = context.blocks
    for name in _PARTS:
        blocks.setdefault(name, []).insert(0, _silent)
    for _ in template.root_render_func(context):
        pass
    for name in _PARTS:
        blocks[name].pop(0)
        if not blocks[name]:
            del blocks[name]
    return blocks


def _silent(_: Context) -> Iterator[str]:
    return iter(())


def _check_domain(domain: str, roots: Sequence[Path]) -> None:
    if not roots[0].is_dir():
        raise TemplateError(f"templates_dir is {str(roots[0])!r}, which is not a directory")
    known = sorted({path.name for root in roots for path in root.iterdir() if path.is_dir()} - {"shared"})
    if domain not in known:
        raise TemplateError(
            f"unknown domain {domain!r}; known: {', '.join(known)}. Choose one of them, or put your own templates "
            f"into a directory {domain!r} and pass its parent as templates_dir"
        )


def _check_slots(file: str, tree: nodes.Template, slots: Sequence[str]) -> None:
    """Find unknown slots also in branches that the sample values do not reach."""
    defined = {node.name for node in tree.find_all(nodes.Macro)} | {
        node.target for node in tree.find_all(nodes.Import)
    }
    defined |= {node.name for node in tree.find_all(nodes.Name) if node.ctx == "store"}
    for node in tree.find_all(nodes.FromImport):
        defined |= {name if isinstance(name, str) else name[1] for name in node.names}
    unknown = sorted(meta.find_undeclared_variables(tree) - defined - set(slots) - {"self", "super"})
    if unknown:
        raise TemplateError(
            f"template {file}: unknown slot {', '.join(map(repr, unknown))}; available: {', '.join(slots) or 'none'}"
        )


def _check_blocks(file: str, trees: Mapping[str, nodes.Template]) -> None:
    """Refuse a block that would replace nothing: Jinja2 leaves it out without a word."""
    known = set(_PARTS)
    parents = _parents(trees[file])
    if not parents:
        return
    seen = {file}
    while parents:
        parent = parents.pop()
        if parent is None or parent not in trees:
            return  # chosen when it is rendered
        if parent not in seen:
            seen.add(parent)
            known |= {block.name for block in trees[parent].find_all(nodes.Block)}
            parents += _parents(trees[parent])
    for name in _outermost_blocks(trees[file]):
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=2)
            meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            raise TemplateError(
                f"template {file}: the block {name!r} is in none of the templates that it extends, so it would be "
                f"left out; {meant}There are {', '.join(sorted(known))}"
            )


def _parents(tree: nodes.Template) -> list[str | None]:
    """What the template extends; None where that is no constant."""
    given = [node.template for node in tree.find_all(nodes.Extends)]
    return [node.value if isinstance(node, nodes.Const) else None for node in given]


def _outermost_blocks(tree: nodes.Node) -> Iterator[str]:
    for node in tree.iter_child_nodes():
        if isinstance(node, nodes.Block):
            yield node.name
        else:
            yield from _outermost_blocks(node)


def _quoted(value: Slot) -> Slot:
    if value is None:
        return None
    if isinstance(value, str):
        return neutralise(shorten(value, MAX_SLOT_CHARS))
    return tuple(map(neutralise, value))


def _failure(name: str | None, error: Exception) -> TemplateError:
    if isinstance(error, TemplateError):
        return error
    if isinstance(error, jinja2.TemplateSyntaxError):
        return TemplateError(f"template {error.name or name}, line {error.lineno}: {error.message}")
    if isinstance(error, jinja2.TemplateNotFound):
        return TemplateError(f"template {name}: the file {error.name!r} does not exist; add it")
    return TemplateError(f"template {name}: {type(error).__name__}: {error}")
