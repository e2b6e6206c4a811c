"""The tests' side: runs test code inside a sandbox of its own, where the program never is.

What the program defines is here as handles: calling one asks the program's process, which gets plain arguments and
gives a plain result. So nothing of the program, such as an `__eq__` that always agrees, ever runs here.
"""

from __future__ import annotations

import _ast
import sys
from collections.abc import Iterator
from typing import Any

from trl_mentor.programs.codec import UnfitError, decode, decode_error, encode, encode_error, texts
from trl_mentor.programs.inside import TESTS, Pipes, limit_cpu, names_in

_ONLY_TREE = 0x400  # ast.PyCF_ONLY_AST, without the import of ast
_SHOWN = 300


def main() -> None:
    """Take an order and carry it out."""
    pipes = Pipes()
    order = pipes.receive()
    limit_cpu(order["seconds"])
    sys.setrecursionlimit(20_000)
    try:
        tree: Any = compile(order["tests"], TESTS, "exec", _ONLY_TREE, dont_inherit=True)
        codes = [compile(tree, TESTS, "exec"), compile(order["setup"], "<setup>", "exec", dont_inherit=True)]
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        pipes.report(texts("unfit", f"the tests do not compile: {type(error).__name__}: {error}"))
        return
    used = {name for code in codes for name in names_in(code)} | {order["entry_point"]}
    pipes.report(texts("names", *sorted(used)))
    bench = _Bench(pipes, order)
    try:
        bench.prepare(codes[1])
        bench.run(tree)
    except UnfitError as error:
        pipes.report(texts("unfit", str(error)))


class _Bench:
    """The test code with handles for the program's names."""

    def __init__(self, pipes: Pipes, order: dict[str, Any]) -> None:
        self.pipes, self.order = pipes, order
        self.handles: dict[int, Handle] = {}
        self.names: dict[str, Any] = {"__name__": "tests"}
        self.passed = self.failed = 0

    def prepare(self, setup: Any) -> None:
        """Take what the program defines; what the setup defines goes before it, but for the entry point."""
        defined = {name: decode(value, self.handle) for name, value in self.pipes.receive()}
        self.names.update(defined)
        self._attempt(setup)
        self.names[self.order["entry_point"]] = defined[self.order["entry_point"]]

    def run(self, tree: Any) -> None:
        """Run every statement, each with an assert in it as one test; the first failure may be the last test."""
        for node in self._statements(tree.body):
            problem = self._test(node)
            counts = problem is not None or _holds(node, _ast.Assert) or _calls_check(node)
            if problem is not None:
                self.failed += 1
                self.pipes.report(
                    texts("failed", self.passed + self.failed, _source(self.order["tests"], node), *problem)
                )
                if self.order["stop"]:
                    break
            elif counts:
                self.passed += 1
        if not self.passed + self.failed:
            raise UnfitError("the tests hold no assert")
        self.pipes.report(texts("verdict", self.passed, self.passed + self.failed))

    def _statements(self, body: list[Any]) -> Iterator[Any]:
        for node in body:
            is_check = isinstance(node, _ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1
            if not is_check:
                yield node
            elif _holds(node, _ast.Return, _ast.Yield, _ast.YieldFrom, _ast.Nonlocal, _ast.Global):
                yield node
                call: Any = compile(f"check({self.order['entry_point']})", TESTS, "exec", _ONLY_TREE)
                yield call.body[0]
            else:
                self.names[node.args.args[0].arg] = self.names[self.order["entry_point"]]
                yield from node.body

    def _test(self, node: Any) -> tuple[Any, ...] | None:
        """None, or what was expected and got, and the exception."""
        compared = node.test if isinstance(node, _ast.Assert) and isinstance(node.test, _ast.Compare) else None
        if compared is not None and [type(one) for one in compared.ops] == [_ast.Eq]:
            return self._equality(compared.left, compared.comparators[0])
        return self._attempt(compile(_ast.Module(body=[node], type_ignores=[]), TESTS, "exec"))

    def _equality(self, left: Any, right: Any) -> tuple[Any, ...] | None:
        try:
            got = eval(compile(_ast.Expression(body=left), TESTS, "eval"), self.names)
            expected = eval(compile(_ast.Expression(body=right), TESTS, "eval"), self.names)
            if got == expected:
                return None
            return (repr(expected)[:_SHOWN], repr(got)[:_SHOWN], None, None)
        except UnfitError:
            raise
        except BaseException as error:
            return (None, None, *self._said(error))

    def _attempt(self, code: Any) -> tuple[Any, ...] | None:
        try:
            exec(code, self.names)
        except UnfitError:
            raise
        except BaseException as error:
            return (None, None, *self._said(error))
        return None

    def _said(self, error: BaseException) -> tuple[str, str]:
        _, own, message = encode_error(error)
        return own, message[:_SHOWN]

    def handle(self, number: int) -> Handle:
        """The handle with this number; there is one for each object."""
        if number not in self.handles:
            self.handles[number] = Handle(self, number)
        return self.handles[number]

    def ask(self, action: str, number: int, given: Any, named: Any) -> Any:
        """What the program's process answers, which may be an exception."""
        room = [self.order["most"]]
        parts = (given if action != "call" else encode(given, _number_of, room), encode(named, _number_of, room))
        first = texts(parts[0])[1:-1] if action != "call" else parts[0]
        self.pipes.report(f'["ask",{texts(action, number)[1:-1]},{first},{parts[1]}]')
        kind, *rest = self.pipes.receive()
        if kind == "raised":
            raise decode_error(rest[0], rest[2])
        value, changed = (decode(part, self.handle) for part in rest)
        if changed is not None:
            for old, new in zip((one for one in given if type(one) in _UPDATED), changed, strict=True):
                _update(old, new)
        return value


class Handle:
    """Something of the program. Equal to itself alone."""

    __slots__ = ("_bench", "_number")

    def __init__(self, bench: _Bench, number: int) -> None:
        object.__setattr__(self, "_bench", bench)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it, in the program's process."""
        return self._bench.ask("call", self._number, list(arguments), named)

    def __getattr__(self, name: str) -> Any:
        """Its attribute, in the program's process."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self._bench.ask("get", self._number, name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, in the program's process."""
        self._bench.ask("set", self._number, name, value)

    def __repr__(self) -> str:
        """Nothing that its class could choose."""
        return "<an object of the program>"


def _number_of(value: Any) -> int:
    if type(value) is Handle:
        number: int = value._number
        return number
    raise UnfitError(f"the tests pass a {type(value).__name__} to the program, which only plain data can be")


def _update(old: Any, new: Any) -> None:
    """Make a container equal to what the program made of its copy; containers in it stay the same objects."""
    if type(old) is dict:
        kept = {key: old[key] for key in old.keys() & new.keys()}
        old.clear()
        old.update({key: _merged(kept.get(key), value) for key, value in new.items()})
    elif type(old) is set:
        old.clear()
        old.update(new)
    else:
        merged = [_merged(one, two) for one, two in zip(old, new, strict=False)]
        old[:] = [*merged, *new[len(merged) :]]


_UPDATED = (list, dict, set, bytearray)


def _merged(old: Any, new: Any) -> Any:
    if type(old) is type(new) and type(old) in _UPDATED:
        _update(old, new)
        return old
    return new


def _holds(node: Any, *kinds: Any) -> bool:
    if isinstance(node, kinds):
        return True
    for name in node._fields:
        value = getattr(node, name, None)
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, _ast.AST) and _holds(part, *kinds):
                return True
    return False


def _calls_check(node: Any) -> bool:
    call = node.value if isinstance(node, _ast.Expr) else None
    return isinstance(call, _ast.Call) and isinstance(call.func, _ast.Name) and call.func.id == "check"


def _source(tests: str, node: Any) -> str:
    return "\n".join(tests.split("\n")[node.lineno - 1 : node.end_lineno])[:_SHOWN]
