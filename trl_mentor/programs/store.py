"""Tests that are too large to travel in every row: each in a file that is named by its digest."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

from trl_mentor.programs.tests import ProgramTests, Style, TestsError, parse_tests

FOLDER_VARIABLE = "TRL_MENTOR_CACHE"
"""Names the folder of the store; every rank has to see the same one."""

MOST_BYTES = 256 * 2**20
"""Of one problem's tests, unpacked; those of LiveCodeBench reach some tens of megabytes."""


class TestStore:
    """Tests by digest, gzipped. Writing is atomic and may be repeated; what is read is checked against its name."""

    __test__ = False

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        default = os.environ.get(FOLDER_VARIABLE) or Path.home() / ".cache" / "trl-mentor" / "tests"
        self.folder = Path(default if folder is None else folder)

    def put(self, tests: ProgramTests) -> ProgramTests:
        """Keep tests; the record that stands for them in a row, of the style STORED."""
        content = tests.to_json().encode()
        if tests.style is Style.STORED:
            return tests
        if len(content) > MOST_BYTES:
            raise TestsError(f"the tests of one problem have {len(content)} bytes, expected at most {MOST_BYTES}")
        digest = hashlib.sha256(content).hexdigest()
        path = self._path(digest)
        if not path.exists():
            write_whole(path, gzip.compress(content, 1, mtime=0))
        return ProgramTests(Style.STORED, sha256=digest)

    def get(self, digest: str) -> ProgramTests:
        """The tests with this digest. Raises `TestsError` if they are not there or are not what was kept."""
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise TestsError(f"got the digest {digest[:80]!r}, expected 64 hexadecimal digits")
        path = self._path(digest)
        try:
            with gzip.open(path) as file:
                content = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            raise TestsError(
                f"the tests {digest[:12]}... are not in the test store {self.folder}; load the data set with "
                f"load_task on this machine, or set {FOLDER_VARIABLE} to the store that it was loaded with"
            ) from None
        except (OSError, EOFError, zlib.error) as error:
            raise TestsError(f"{path} cannot be read ({error}); delete it and load the data set again") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise TestsError(f"{path} does not hold what its name says; delete it and load the data set again")
        tests = parse_tests(content.decode(errors="replace"))
        if tests.style is Style.STORED:
            raise TestsError(f"{path} refers to other stored tests, expected the tests themselves")
        return tests

    def __contains__(self, digest: str) -> bool:
        """Whether tests are kept under this digest; they are not read."""
        return self._path(digest).exists()

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.json.gz"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that readers see the whole of it or none, however many processes write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
