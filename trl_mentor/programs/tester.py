"""The tests' side: runs test code inside a sandbox of its own, where the program never is.

What the program defines is here as handles: calling one asks the program's process, which gets plain arguments and
gives a plain result. So nothing of the program, such as an `__eq__` that always agrees, ever runs here.
"""

from __future__ import annotations

import _ast
import builtins
import sys
from collections.abc import Iterator
from typing import Any

from trl_mentor.programs.codec import UnfitError, encode_error, texts
from trl_mentor.programs.handles import Program
from trl_mentor.programs.inside import TESTS, Pipes, limit_cpu, names_in, suppress

_ONLY_TREE = 0x400  # ast.PyCF_ONLY_AST, without the import of ast
_RAN = "__assert_ran__"
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
    used = {name for code in codes for name in names_in(code) if not name.startswith("__")}
    # What tests compare with is never the program's: neither its `abs` nor its `math`.
    wanted = (used - vars(builtins).keys() - set(order["modules"])) | {order["entry_point"]}
    pipes.report(texts("names", *sorted(wanted)))
    bench = _Bench(pipes, order)
    bench.names.update({name: __import__(name) for name in used & {*order["modules"]} - {order["entry_point"]}})
    try:
        bench.prepare(codes[1])
        bench.run(tree)
    except UnfitError as error:
        pipes.report(texts("unfit", str(error)))


class _Bench:
    """The test code with handles for the program's names."""

    def __init__(self, pipes: Pipes, order: dict[str, Any]) -> None:
        self.pipes, self.order = pipes, order
        self.program = Program(pipes, order["most"])
        self.asserts: list[None] = []
        """One for each assert that ran inside of another statement."""
        self.names: dict[str, Any] = {"__name__": "tests", _RAN: lambda: self.asserts.append(None)}
        self.passed = self.failed = 0

    def prepare(self, setup: Any) -> None:
        """Take what the program defines; what the setup defines goes before it, but for the entry point."""
        for name, value in self.pipes.receive():
            with suppress(ValueError):
                self.names[name] = self.program.read(value)
        entry = self.names.get(self.order["entry_point"])
        self._attempt(setup)
        self.names[self.order["entry_point"]] = entry

    def run(self, tree: Any) -> None:
        """Run every statement, each in which an assert runs as one test; the first failure may be the last test."""
        for node in self._statements(tree.body):
            self.asserts.clear()
            problem = self._test(node)
            counts = problem is not None or isinstance(node, _ast.Assert) or self.asserts
            if problem is not None:
                self.failed += 1
                self.pipes.report(
                    texts("failed", self.passed + self.failed, _source(self.order["tests"], node), *problem)
                )
                if self.order["stop"]:
                    break
            elif counts:
                self.passed += 1
        if self.program.unfit:
            raise UnfitError(self.program.unfit)
        if not self.passed + self.failed:
            raise UnfitError("the tests run no assert; functions that hold some have to be called")
        self.pipes.report(texts("verdict", self.passed, self.passed + self.failed))

    def _statements(self, body: list[Any]) -> Iterator[Any]:
        called = any(map(_calls_check, body))
        for node in body:
            is_check = isinstance(node, _ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1
            if called or not is_check:
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
        _mark_asserts(node)
        return self._attempt(compile(_ast.Module(body=[node], type_ignores=[]), TESTS, "exec"))

    def _equality(self, left: Any, right: Any) -> tuple[Any, ...] | None:
        try:
            got = eval(compile(_ast.Expression(body=left), TESTS, "eval"), self.names)
            expected = eval(compile(_ast.Expression(body=right), TESTS, "eval"), self.names)
            if got == expected:
                return None
            return (_shown(expected), _shown(got), None, None)
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


def _holds(node: Any, *kinds: Any) -> bool:
    if isinstance(node, kinds):
        return True
    for name in node._fields:
        value = getattr(node, name, None)
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, _ast.AST) and _holds(part, *kinds):
                return True
    return False


def _mark_asserts(node: Any) -> None:
    """Have every assert inside of a statement say that it runs."""
    mark: Any = compile(f"{_RAN}()", TESTS, "exec", _ONLY_TREE)
    for name in node._fields:
        value = getattr(node, name, None)
        parts = value if isinstance(value, list) else [value]
        for part in [part for part in parts if isinstance(part, _ast.AST)]:
            _mark_asserts(part)
            if isinstance(part, _ast.Assert):
                parts.insert(parts.index(part), mark.body[0])


def _calls_check(node: Any) -> bool:
    call = node.value if isinstance(node, _ast.Expr) else None
    return isinstance(call, _ast.Call) and isinstance(call.func, _ast.Name) and call.func.id == "check"


def _shown(value: Any) -> str:
    try:
        return repr(value)[:_SHOWN]
    except ValueError:  # an integer of more digits than Python writes
        return f"a {type(value).__name__} too large to show"


def _source(tests: str, node: Any) -> str:
    return "\n".join(tests.split("\n")[node.lineno - 1 : node.end_lineno])[:_SHOWN]
