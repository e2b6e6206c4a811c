"""Inside the tests' sandbox: what stands for the objects of the program, which stay in the other one."""

from __future__ import annotations

from typing import Any

from trl_mentor.programs.codec import UnfitError, decode, decode_error, encode, texts
from trl_mentor.programs.inside import Pipes


class Program:
    """The program as its tests know it: handles, and a way to ask for what they stand for."""

    def __init__(self, pipes: Pipes, most: int) -> None:
        self.pipes, self.most = pipes, most
        self.handles: dict[int, Handle] = {}
        self.unfit = ""
        """What the tests tried to hand over and could not, even where they caught the exception."""

    def handle(self, number: int) -> Handle:
        """The handle with this number; there is one for each object."""
        if number not in self.handles:
            self.handles[number] = Handle(self, number)
        return self.handles[number]

    def read(self, data: Any) -> Any:
        """A value that the program hands over. Raises `ValueError` for one that no program can have."""
        try:
            return decode(data, self.handle)
        except Exception as error:
            raise ValueError(f"the program hands over what cannot be read: {type(error).__name__}") from None

    def ask(self, action: str, number: int, given: Any, named: Any) -> Any:
        """What the program's process answers, which may be an exception."""
        room = [self.most]
        try:
            first = encode(given, self._number_of, room)
            second = encode(named, self._number_of, room)
        except UnfitError as error:
            self.unfit = str(error)
            raise
        self.pipes.report(f'["ask",{texts(action, number)[1:-1]},{first},{second}]')
        kind, *rest = self.pipes.receive()
        if kind == "raised":
            raise decode_error(rest[0], rest[2])
        value, changed = self.read(rest[0]), self.read(rest[1])
        if changed is not None:
            for old, new in zip((one for one in given if type(one) in _UPDATED), changed, strict=True):
                _update(old, new)
        return value

    def _number_of(self, value: Any) -> int:
        if type(value) is Handle:
            return value._number
        raise UnfitError(f"the tests pass a {type(value).__name__} to the program, which only plain data can be")


class Handle:
    """Something of the program. Equal to itself alone."""

    __slots__ = ("_number", "_program")
    _number: int
    _program: Program

    def __init__(self, program: Program, number: int) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it, in the program's process."""
        return self._program.ask("call", self._number, list(arguments), named)

    def __getattr__(self, name: str) -> Any:
        """Its attribute, in the program's process."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self._program.ask("get", self._number, name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, in the program's process."""
        self._program.ask("set", self._number, name, value)

    def __repr__(self) -> str:
        """Nothing that its class could choose."""
        return "<an object of the program>"


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
