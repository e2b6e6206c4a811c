"""The program's side: runs a program inside the sandbox and reports what it does.

It shares the sandbox with the program, which can do with it as it likes. So it is never told what is expected: whoever
takes it over can report outputs, which is what programs are for.
"""

from __future__ import annotations

import builtins
import os
import sys
import time
from typing import Any

from trl_mentor.programs.codec import UnfitError, decode, encode, encode_error, texts
from trl_mentor.programs.inside import PROGRAM, Pipes, failure_of, limit_cpu, new_module, suppress
from trl_mentor.programs.server import Server
from trl_mentor.programs.watch import Watch

_RECURSION = 50_000


def main() -> None:
    """Take an order and carry it out."""
    pipes = Pipes()
    order = pipes.receive()
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # which `site` provides elsewhere
    sys.setrecursionlimit(_RECURSION)
    try:
        code = _compiled(order)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        pipes.report(texts("refused", *failure_of(error, order["program"])))
        pipes.receive()  # which may be on its way: nobody shall write to a pipe that has no reader
        return
    if order["style"] == "asserts":
        limit_cpu(order["seconds"])
        Server(pipes, order).serve(code)
        return
    module = new_module("__main__" if order["style"] == "stdin" else "solution", code, order["common"])
    while True:
        given = pipes.receive()
        pipes.report(texts("case", *_Case(order, code, module).run(given, pipes)))


def _compiled(order: dict[str, Any]) -> Any:
    """The program's code; one that only goes on where the setup ends, in a function without a body, gets that before.

    HumanEval's prompts end so, and base models continue them.
    """
    try:
        return compile(order["program"], PROGRAM, "exec", dont_inherit=True)
    except SyntaxError:
        whole = order.get("setup", "") + order["program"]
        with suppress(SyntaxError):
            code = compile(whole, PROGRAM, "exec", dont_inherit=True)
            order["program"] = whole
            return code
        raise


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
        watch = Watch(child, output, said, self.order["most"])
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
            text = "" if quits else texts("raised", *failure_of(error, self.order["program"]))
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
