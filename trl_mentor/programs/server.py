"""Inside the program's sandbox: its functions, as the tests in the other sandbox call them."""

from __future__ import annotations

from typing import Any

from trl_mentor.programs.codec import UnfitError, decode, encode, texts
from trl_mentor.programs.inside import Pipes, failure_of, new_module, suppress

_MOST_HANDLES = 10_000
_MUTABLE = (list, dict, set, bytearray)


class Server:
    """A program whose functions are called from outside, as tests need them."""

    def __init__(self, pipes: Pipes, order: dict[str, Any]) -> None:
        self.pipes, self.order = pipes, order
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}

    def serve(self, code: Any) -> None:
        """Run the program, tell what it defines, and answer calls until there are none any more."""
        module = new_module("solution", code, self.order["common"])
        names = module.__dict__
        with suppress(BaseException):
            exec(compile(self.order["setup"], "<setup>", "exec", dont_inherit=True), names)
        entry = self.order["entry_point"]
        names.pop(entry, None)
        try:
            exec(code, names)
            if entry not in names:
                raise NameError(f"the program does not define {entry!r}")
            defined = [
                f"[{texts(name)[1:-1]},{self._encoded(names[name])}]" for name in self.order["names"] if name in names
            ]
            answer = f'["defined",[{",".join(defined)}]]'
        except BaseException as error:
            answer = texts("refused", *failure_of(error, self.order["program"]))
        self.pipes.report(answer)
        while True:
            request = self.pipes.receive()
            try:
                answer = self._answer(*request)
            except BaseException as error:
                answer = texts("raised", *failure_of(error, self.order["program"]))
            self.pipes.report(answer)

    def _answer(self, action: str, number: int, given: Any, named: Any) -> str:
        target = self.objects[number]
        if action == "get":
            return f'["value",{self._encoded(getattr(target, given))},null]'
        if action == "set":
            setattr(target, given, decode(named, self.objects.__getitem__))
            return '["value",null,null]'
        arguments, keywords = decode(given, self.objects.__getitem__), decode(named, self.objects.__getitem__)
        changeable = [one for one in arguments if type(one) in _MUTABLE]
        before = self._encoded(changeable)
        value = self._encoded(target(*arguments, **keywords))
        after = self._encoded(changeable)
        return f'["value",{value},{"null" if before == after else after}]'

    def _encoded(self, value: Any) -> str:
        return encode(value, self._keep, [self.order["most"]])

    def _keep(self, value: Any) -> int:
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
            if number > _MOST_HANDLES:
                raise UnfitError("the program hands over too many objects that are no plain data")
        return number
