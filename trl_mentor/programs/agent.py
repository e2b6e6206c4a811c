"""The program's side: runs a program inside the sandbox and reports what it does.

It shares the sandbox with the program, which can do with it as it likes. So it is never told what is expected: whoever
takes it over can report outputs, which is what programs are for.
"""

from __future__ import annotations

import builtins
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from trl_mentor.programs.codec import UnfitError, decode, encode, encode_error, texts
from trl_mentor.programs.inside import PROGRAM, Pipes, limit_cpu, names_in, place_of

_MOST_HANDLES = 10_000
_RECURSION = 50_000
_MUTABLE = (list, dict, set, bytearray)


def main() -> None:
    """Take an order and carry it out."""
    pipes = Pipes()
    order = pipes.receive()
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # which `site` provides elsewhere
    sys.setrecursionlimit(_RECURSION)
    try:
        code = compile(order["program"], PROGRAM, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        pipes.report(texts("refused", *_failure(error, order["program"])))
        return
    if order["style"] == "asserts":
        limit_cpu(order["seconds"])
        _Server(pipes, order).serve(code)
        return
    module = _module("__main__" if order["style"] == "stdin" else "solution", code, order["common"])
    for number, given in enumerate(order["inputs"]):
        ending, output, said = _Case(order, code, module).run(given, pipes)
        pipes.report(texts("case", number, ending, output, said))


def _module(name: str, code: Any, common: dict[str, Any]) -> Any:
    """A new module that knows those of the commonly imported names that the code uses."""
    module = type(sys)(name)
    sys.modules[name] = module
    for used in {*names_in(code)} & common.keys():
        origin, attribute = common[used]
        imported = __import__(origin)
        setattr(module, used, getattr(imported, attribute) if attribute else imported)
    return module


def _failure(error: BaseException, source: str) -> list[Any]:
    return [*encode_error(error), *place_of(error, source, PROGRAM)]


def _no_handle(_: Any) -> Any:
    raise UnfitError("the result is no plain data")


class _Case:
    """One run of a program for one input, in a child of its own."""

    def __init__(self, order: dict[str, Any], code: Any, module: Any) -> None:
        self.order, self.code, self.module = order, code, module

    def run(self, given: Any, pipes: Pipes) -> tuple[str, str, str]:
        """How it ended, its standard output, and what the child says of it."""
        output, output_end = os.pipe()
        said, said_end = os.pipe()
        try:
            child = os.fork()
        except OSError as error:
            for end in (output, output_end, said, said_end):
                os.close(end)
            return "unstarted", "", texts(*encode_error(error))
        if not child:
            try:
                os.setpgid(0, 0)
                pipes.close()
                os.close(output)
                os.close(said)
                self._child(given, output_end, said_end)
            finally:
                os._exit(0)
        os.close(output_end)
        os.close(said_end)
        with suppress(OSError):
            os.setpgid(child, child)
        watch = _Watch(child, output, said, self.order["most"])
        ending = watch.until(time.monotonic() + self.order["wall"])
        return ending, watch.text(output), watch.text(said)

    def _child(self, given: Any, output: int, said: int) -> None:
        limit_cpu(self.order["seconds"])
        try:
            if self.order["style"] == "stdin":
                self._feed(given, output)
                exec(self.code, self.module.__dict__)
                text = ""
            else:
                exec(self.code, self.module.__dict__)
                function = self._function()
                text = encode(function(*decode(given, _no_handle)), _no_handle, [self.order["most"]])
                text = f'["value",{text}]'
        except BaseException as error:
            quits = isinstance(error, SystemExit) and self.order["style"] == "stdin"
            text = "" if quits else texts("raised", *_failure(error, self.order["program"]))
        _finish()
        data = memoryview(text.encode("ascii"))
        while data:
            data = data[os.write(said, data) :]

    def _feed(self, given: str, output: int) -> None:
        """Give the child a standard input of this text, which can be read in every way a file can."""
        source = os.memfd_create("input")
        data = memoryview(given.encode("utf-8", "surrogatepass"))
        while data:
            data = data[os.write(source, data) :]
        os.lseek(source, 0, os.SEEK_SET)
        os.dup2(source, 0)
        os.dup2(output, 1)
        os.close(source)
        os.close(output)

    def _function(self) -> Any:
        name = self.order["function"]
        names = self.module.__dict__
        if "Solution" in names and hasattr(names["Solution"], name):
            return getattr(names["Solution"](), name)
        if name not in names:
            raise NameError(f"the program defines no function {name!r}, nor class Solution with this method")
        return names[name]


def _finish() -> None:
    """What an interpreter does at its end: wait for threads, call exit functions, flush."""
    for module, function in (("threading", "_shutdown"), ("atexit", "_run_exitfuncs")):
        with suppress(BaseException):
            getattr(sys.modules[module], function)()
    for stream in (sys.stdout, sys.__stdout__):
        with suppress(BaseException):
            stream.flush()  # type: ignore[union-attr]


class _Watch:
    """Reads what a child writes until it ends, is late or writes too much; then ends its process group."""

    def __init__(self, child: int, output: int, said: int, most: int) -> None:
        self.child, self.most = child, most
        self.data = {output: bytearray(), said: bytearray()}
        self.status: int | None = None

    def until(self, end: float) -> str:
        """How it ended: `exited`, `timed_out`, `output` or `killed`."""
        ending = self._read(end)
        while not ending and self._runs():  # it has closed its pipes
            time.sleep(0.005)
            ending = "timed_out" if time.monotonic() > end else ""
        with suppress(OSError):
            os.killpg(self.child, signal.SIGKILL)
        if self.status is None:
            with suppress(ChildProcessError):
                self.status = os.waitpid(self.child, 0)[1]
        for pipe in self.data:
            os.close(pipe)
        if ending or self.status is None or not os.WIFSIGNALED(self.status):
            return ending or "exited"
        return "timed_out" if os.WTERMSIG(self.status) == signal.SIGXCPU else "killed"

    def text(self, pipe: int) -> str:
        """What came through a pipe."""
        return bytes(self.data[pipe]).decode("utf-8", "replace")

    def _read(self, end: float) -> str:
        poll, left = select.poll(), set(self.data)
        for pipe in self.data:
            poll.register(pipe, select.POLLIN)
        while left:
            wait = end - time.monotonic()
            if wait <= 0:
                return "timed_out"
            ended = not self._runs()
            ready = poll.poll(0 if ended else min(wait, 0.05) * 1000)
            for pipe, _ in ready:
                part = os.read(pipe, 65536)
                self.data[pipe] += part
                if len(self.data[pipe]) > self.most:
                    return "output"
                if not part:
                    poll.unregister(pipe)
                    left.discard(pipe)
            if ended and not ready:  # what it started holds the pipes
                break
        return ""

    def _runs(self) -> bool:
        if self.status is None:
            try:
                found, status = os.waitpid(self.child, os.WNOHANG)
            except ChildProcessError:
                return False
            self.status = status if found else None
        return self.status is None


class _Server:
    """A program whose functions are called from outside, as tests need them."""

    def __init__(self, pipes: Pipes, order: dict[str, Any]) -> None:
        self.pipes, self.order = pipes, order
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}

    def serve(self, code: Any) -> None:
        """Run the program, tell what it defines, and answer calls until there are none any more."""
        module = _module("solution", code, self.order["common"])
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
            answer = texts("refused", *_failure(error, self.order["program"]))
        self.pipes.report(answer)
        while True:
            request = self.pipes.receive()
            try:
                answer = self._answer(*request)
            except BaseException as error:
                answer = texts("raised", *_failure(error, self.order["program"]))
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
