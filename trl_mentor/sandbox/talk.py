"""Feeds a program and reads it at the same time, so that neither waits for the other."""

from __future__ import annotations

import os
import selectors
import socket
import time
from contextlib import suppress
from typing import IO

_CHUNK = 65536
_PAUSE = 3600.0


class Talk:
    """One program's input and outputs. It is told to stop when it has written more than `most` bytes to one of two."""

    def __init__(
        self, feed: IO[bytes], outputs: tuple[IO[bytes], IO[bytes]], answer: socket.socket, stdin: bytes, most: int
    ) -> None:
        self._feed, self._files, self._answer = feed, outputs, answer
        self._left, self._most = memoryview(stdin), most
        self._report = b""
        self._reported = False
        self.outputs = (bytearray(), bytearray())
        self.too_much = False
        """Whether it wrote more than it may; what is above that is not kept."""

    def until_the_end(self, seconds: float) -> bytes:
        """Talk until the program is dead and its remains are gone; what is said of its end, empty after `seconds`."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for file in (self._feed, *self._files):
                os.set_blocking(file.fileno(), False)
            selector.register(self._feed, selectors.EVENT_WRITE, self._write)
            for index, file in enumerate(self._files):
                selector.register(file, selectors.EVENT_READ, lambda index=index: self._read(index))
            selector.register(self._answer, selectors.EVENT_READ, self._listen)
            while not self._reported and (left := end - time.monotonic()) > 0:
                for key, _ in selector.select(min(left, _PAUSE)):
                    if not key.data():
                        selector.unregister(key.fileobj)
                        if key.fileobj is self._feed:
                            self._feed.close()
        for index in range(2 if self._reported else 0):  # a program that has not ended might write for ever
            while self._read(index):
                pass
        return self._report

    def _write(self) -> bool:
        """Whether there is more to write."""
        try:
            self._left = self._left[os.write(self._feed.fileno(), self._left[:_CHUNK]) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(self._left)

    def _read(self, index: int) -> bool:
        """Whether more may come."""
        try:
            part = os.read(self._files[index].fileno(), _CHUNK)
        except BlockingIOError:
            return not self._reported
        if len(self.outputs[index]) <= self._most:
            self.outputs[index].extend(part)
        if len(self.outputs[index]) > self._most and not self.too_much:
            self.too_much = True
            with suppress(OSError):
                self._answer.shutdown(socket.SHUT_WR)
        return bool(part)

    def _listen(self) -> bool:
        part = self._answer.recv(_CHUNK)
        self._report += part
        self._reported = not part
        return True
