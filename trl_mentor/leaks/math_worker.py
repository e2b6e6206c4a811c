"""The process that reads expressions: a request in JSON per line of its input, the expression's values on its output.

`math_process` starts it, kills it and bounds its time; nothing else imports this module. An expression may take for
ever in the parser or in sympy, where nothing but the end of a process ends it.
"""

from __future__ import annotations

from typing import Any

from trl_mentor.workers import serve

_POINTS = ("0.7316", "1.2894", "2.1743", "0.3921", "1.8062", "2.9317")
_CPU_SECONDS = 1.0
_MEMORY = 2 * 1024**3
_ALGEBRA = (ArithmeticError, AttributeError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What the parser and sympy raise at expressions that they cannot read."""


def main() -> None:
    """Answer until the input ends; the first expression builds the parser's tables."""
    serve(_answer, warm_up=lambda: read("1+\\frac{x}{\\sqrt{2}}"), cpu_seconds=_CPU_SECONDS, memory=_MEMORY)


def read(text: str) -> dict[str, Any] | None:
    """An expression's variables, and its values at fixed points; None for what is no expression or has no value.

    Equal objects of a computer algebra system are not needed after that.
    """
    import sympy
    from math_verify import LatexExtractionConfig, parse

    found = parse(f"${text}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    expression: Any = found[0] if found else None
    if isinstance(expression, sympy.Eq):
        equation, expression = True, expression.lhs - expression.rhs
    else:
        equation = False
    if not isinstance(expression, sympy.Expr):
        return None
    free = {symbol.name: symbol for symbol in expression.free_symbols}
    constants = {"i": sympy.I, "e": sympy.E}
    expression = expression.subs({free[name]: value for name, value in constants.items() if name in free})
    names = sorted(free.keys() - constants.keys())
    if len(names) > 4:
        return None
    values = []
    for shift in range(3 if names else 1):
        at = {free[name]: sympy.Rational(_POINTS[(index + shift) % len(_POINTS)]) for index, name in enumerate(names)}
        try:
            values.append(complex(expression.subs(at).evalf(20)))
        except (TypeError, ValueError, ArithmeticError):
            return None
    if not all(value == value and abs(value) < 1e300 for value in values):
        return None
    return {"names": names, "equation": equation, "values": [(value.real, value.imag) for value in values]}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"read": read(request["text"])}
    except _ALGEBRA as error:
        return {"error": f"{type(error).__name__} from the algebra"}
