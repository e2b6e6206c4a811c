"""Runs one-line programs that nobody vouches for.

A program is refused unless every word is known, its syntax tree is a number or a sequence of numbers built from the
few forms below, and it holds at most one comprehension. There are no attributes, strings, powers, lambdas or products
of sequences, and `range` is bounded, so what is left to run is short, small and without side effects.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

MAX_CHARS = 200
MAX_RANGE = 1000

_TOKEN = re.compile(r"\s*(//|>=|<=|==|!=|[a-z]+|[0-9]+|[-+*/%<>()\[\],:])")
_WORDS = frozenset(("sum", "max", "min", "len", "range", "for", "in", "if", "x", "xs", "n"))
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_REDUCTIONS = frozenset(("sum", "max", "min", "len"))


class ProgramError(ValueError):
    """The program is not one that this sandbox runs, or it failed while it ran."""


def compile_program(program: str) -> CodeType:
    """Check a program against the whitelist and compile it; raises `ProgramError`."""
    source = " ".join(_words(program))
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(f"not an expression: {error}") from None
    comprehensions = sum(isinstance(node, ast.comprehension) for node in ast.walk(tree))
    if comprehensions > 1 or not (_is_number(tree.body) or _is_sequence(tree.body)):
        raise ProgramError("only a number or a sequence of numbers with at most one comprehension is allowed")
    return compile(tree, "<program>", "eval")


def run_program(code: CodeType, *, xs: Sequence[int], n: int) -> Any:
    """The value of a compiled program for one input; raises `ProgramError` for whatever goes wrong in it."""
    names: dict[str, Any] = {"__builtins__": {}, **_BUILTINS, "xs": list(xs), "n": n}
    try:
        return eval(code, names)
    except (ArithmeticError, LookupError, NameError, TypeError, ValueError) as error:
        raise ProgramError(f"{type(error).__name__}: {error}") from None


def _words(program: str) -> list[str]:
    """Its tokens, each of them known; joined by spaces they parse as they read."""
    program = program.strip()
    if len(program) > MAX_CHARS:
        raise ProgramError(f"{len(program)} characters, more than {MAX_CHARS}")
    words, position = [], 0
    while position < len(program):
        match = _TOKEN.match(program, position)
        if match is None:
            raise ProgramError(f"unknown character {program[position]!r}")
        word = match.group(1)
        if (word.isalpha() and word not in _WORDS) or (word.isdigit() and len(word) > 3):
            raise ProgramError(f"unknown word {word!r}")
        words.append(word)
        position = match.end()
    return words


def _is_number(node: ast.expr | None) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.Name(id=name):
            return name in ("x", "n")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, op=operator, right=right):
            return isinstance(operator, _OPERATORS) and _is_number(left) and _is_number(right)
        case ast.Compare(left=left, comparators=rest):
            return all(_is_number(part) for part in (left, *rest))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            return name in _REDUCTIONS and _is_sequence(argument)
        case ast.Subscript(value=value, slice=index):
            return _is_sequence(value) and _is_number(index)
    return False


def _is_sequence(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name):
            return name == "xs"
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
            return _is_sequence(value) and all(part is None or _is_number(part) for part in (lower, upper, step))
        case ast.ListComp(elt=element, generators=[loop]) | ast.GeneratorExp(elt=element, generators=[loop]):
            target_is_x = isinstance(loop.target, ast.Name) and loop.target.id == "x"
            conditions = all(_is_number(condition) for condition in loop.ifs)
            return target_is_x and conditions and _is_number(element) and _is_sequence(loop.iter)
        case ast.Call(func=ast.Name(id="range"), args=arguments, keywords=[]):
            return 1 <= len(arguments) <= 3 and all(_is_number(argument) for argument in arguments)
    return False


def _bounded_range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > MAX_RANGE:
        raise ValueError(f"a range of more than {MAX_RANGE} numbers")
    return numbers


_BUILTINS: Mapping[str, Any] = {"sum": sum, "max": max, "min": min, "len": len, "range": _bounded_range}
