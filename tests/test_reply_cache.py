"""The mentor's replies on disk: what is found again, by whom, and what becomes of damaged files and full disks."""

from __future__ import annotations

import gc
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import said

from trl_mentor.backends.scripted import ScriptedBackend
from trl_mentor.errors import BackendError
from trl_mentor.mentor import Mentor
from trl_mentor.records import Attempt, CollapsedGroup, HintOrigin, Reply, Role, Usage
from trl_mentor.reply_cache import ReplyCache, request_digest

ASK = [{"role": "user", "content": "Is it good?"}]
AWKWARD = 'quotes " and \\ \x00 \ud800 \u2028 été 🎈\n'


@pytest.fixture
def cache(tmp_path):
    made = ReplyCache(tmp_path / "cache")
    yield made
    made.close()


def files(folder):
    """The files of the cache, without those that SQLite keeps beside them."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm")))


# The file.


def test_a_reply_is_found_again_as_it_was_by_request_and_draw(cache, tmp_path):
    reply = Reply(AWKWARD, Usage(9, 9), truncated=True, thinking="hm " + AWKWARD, endpoint="http://a")
    assert cache.put("d1", 0, reply) == reply
    again = ReplyCache(tmp_path / "cache")
    assert again.get("d1", 0) == replace(reply, usage=Usage(), endpoint=None)
    assert again.get("d1", 1) is None
    assert again.get("d2", 0) is None
    again.close()


def test_nothing_is_on_disk_before_it_is_used(tmp_path):
    ReplyCache(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


def test_of_two_replies_to_one_request_the_first_holds(cache):
    cache.put("d", 0, Reply("first"))
    assert cache.put("d", 0, Reply("second", Usage(5, 5))) == Reply("first", Usage(5, 5))
    assert cache.get("d", 0).text == "first"


@pytest.mark.parametrize("reply", [Reply("x" * 1_000_001), Reply(None), Reply(7), Reply("x", thinking=None)])
def test_a_reply_that_is_odd_or_huge_is_passed_on_and_not_stored(cache, reply):
    assert cache.put("d", 0, reply) is reply
    assert cache.get("d", 0) is None


def test_a_row_that_cannot_be_read_is_replaced(cache):
    cache.put("d", 0, Reply("fine"))
    for garbage in ("{", "[1]", '{"text": 5}', b"\xff", None):
        with sqlite3.connect(cache.path) as other:
            other.execute("UPDATE replies SET reply = ?", (garbage,))
        other.close()
        assert cache.get("d", 0) is None
        assert cache.put("d", 0, Reply("new")) == Reply("new")
        assert cache.get("d", 0) == Reply("new")


DAMAGES = {
    "nonsense": b"hello, this is no database at all" * 99,
    "torn header": b"SQLite format 3\x00" + b"\xff" * 4_000,
    "short": b"SQLite",
}


@pytest.mark.parametrize("data", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_left_alone_with_a_warning_and_another_is_used(tmp_path, caplog, data):
    damaged = tmp_path / "replies.sqlite"
    damaged.write_bytes(data)
    for _ in range(2):  # the second time it finds what the first has stored
        cache = ReplyCache(tmp_path)
        cache.put("d", 0, Reply("fine"))
        assert cache.get("d", 0) == Reply("fine")
        cache.close()
    assert damaged.read_bytes() == data
    assert files(tmp_path) == ["replies-1.sqlite", "replies.sqlite"]
    assert [("replies.sqlite" in record.message, record.levelname) for record in caplog.records] == [
        (True, "WARNING")
    ] * 2


def test_a_database_of_somebody_else_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "replies.sqlite") as other:
        other.execute("CREATE TABLE replies (mine TEXT)")
    other.close()
    cache = ReplyCache(tmp_path)
    cache.put("d", 0, Reply("fine"))
    assert cache.get("d", 0) == Reply("fine")
    cache.close()
    with sqlite3.connect(tmp_path / "replies.sqlite") as other:
        assert other.execute("SELECT * FROM replies").fetchall() == []
    other.close()


def test_a_file_that_is_torn_while_it_is_used_costs_its_replies_and_no_more(tmp_path, caplog):
    cache = ReplyCache(tmp_path)
    for number in range(300):
        cache.put(f"d{number}", 0, Reply(f"{number} " * 50))
    cache.close()
    data = (tmp_path / "replies.sqlite").read_bytes()
    (tmp_path / "replies.sqlite").write_bytes(data[: len(data) // 2])
    for number in range(300):
        reply = cache.get(f"d{number}", 0)
        assert reply is None or reply.text == f"{number} " * 50
    cache.put("new", 0, Reply("fine"))
    assert cache.get("new", 0) == Reply("fine")
    cache.close()
    assert len(caplog.records) == 1


def test_a_file_that_is_deleted_in_use_is_begun_anew_and_said_once(tmp_path, caplog):
    cache, other = ReplyCache(tmp_path / "cache"), ReplyCache(tmp_path / "cache")
    for number in range(3):
        cache.put("d", number, Reply(f"before {number}"))
        shutil.rmtree(tmp_path / "cache")
    assert cache.put("d", 0, Reply("after")) == Reply("after")
    assert other.get("d", 0) == Reply("after")
    assert cache.get("d", 0) == Reply("after")
    said = [line for line in caplog.messages if "was deleted or moved away in use" in line]
    assert len(said) == 1
    cache.close()
    other.close()


def test_a_directory_that_cannot_be_made_is_said_once_and_costs_only_the_cache(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    cache = ReplyCache(tmp_path / "file" / "cache")
    for _ in range(3):
        assert cache.put("d", 0, Reply("fine")) == Reply("fine")
        assert cache.get("d", 0) is None
    assert ["cannot be cached" in record.message for record in caplog.records] == [True]


FULL = """
import logging, resource, signal, sys
from trl_mentor.records import Reply
from trl_mentor.reply_cache import ReplyCache

logging.basicConfig(stream=sys.stdout, format="%(message)s")
cache = ReplyCache(sys.argv[1])
cache.put("small", 0, Reply("fine"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for number in range(20):
    assert cache.put(f"d{number}", 0, Reply("x" * 50_000)).text == "x" * 50_000
cache._idle_until = 0.0  # later
assert cache.get("small", 0) == Reply("fine")
cache.close()
print("went on")
"""


def test_a_disk_that_is_full_is_said_once_and_what_is_there_stays_readable(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    said_first, last = done.stdout.strip().splitlines()
    assert "training goes on" in said_first
    assert last == "went on"


def test_a_cache_that_is_dropped_closes_its_file(tmp_path):
    cache = ReplyCache(tmp_path)
    cache.put("d", 0, Reply("fine"))
    connection = cache._connection
    del cache
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


# Threads and processes.


def test_threads_agree_on_one_reply_for_each_request(cache):
    together = threading.Barrier(16)

    def work(name):
        together.wait()
        return [cache.put(f"d{number}", 0, Reply(f"{name}")).text for number in range(40)]

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(work, range(16)))
    assert all(texts == found[0] for texts in found)
    assert [cache.get(f"d{number}", 0).text for number in range(40)] == found[0]


WRITER = """
import sys
from trl_mentor.records import Reply
from trl_mentor.reply_cache import ReplyCache

cache = ReplyCache(sys.argv[1])
sys.stdin.readline()
for number in range(150):
    print(cache.put(f"d{number}", 0, Reply(sys.argv[2] * 500)).text[0], end="")
cache.close()
"""


def test_two_processes_write_at_once_and_agree(tmp_path):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    outputs = [writer.communicate(timeout=60) for writer in writers]
    (first, errors), (second, other_errors) = outputs
    assert (len(first), first, errors + other_errors) == (150, second, "")
    cache = ReplyCache(tmp_path)
    assert "".join(cache.get(f"d{number}", 0).text[0] for number in range(150)) == first
    cache.close()


def test_a_process_that_is_killed_while_it_writes_leaves_a_cache_that_works(tmp_path):
    code = WRITER.replace("range(150)", "range(10**6)")
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), "a"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    writer.stdin.write(b"\n")
    writer.stdin.flush()
    cache = ReplyCache(tmp_path)
    while cache.get("d30", 0) is None:
        assert writer.poll() is None
    writer.kill()
    writer.communicate()
    cache.put("new", 0, Reply("fine"))
    assert [cache.get(name, 0).text[:4] for name in ("d0", "d30", "new")] == ["aaaa", "aaaa", "fine"]
    cache.close()
    assert files(tmp_path) == ["replies.sqlite"]


# What is the same request.


def test_everything_that_determines_the_reply_is_in_the_digest():
    base = ("model m at 0.7", Role.JUDGMENT, ASK, None)
    others = [
        ("model m at 0.8", *base[1:]),
        (base[0], Role.REPAIR, *base[2:]),
        (*base[:2], [{"role": "user", "content": "Is it good? "}], None),
        (*base[:2], [{"role": "system", "content": "Is it good?"}], None),
        (*base[:3], {"type": "object"}),
    ]
    assert request_digest(*base) == request_digest(base[0], base[1], [dict(ASK[0])], None)
    assert len({request_digest(*request) for request in [base, *others]}) == 6
    request_digest("m", Role.REPAIR, [{"role": "user", "content": AWKWARD, "odd": object}], {"x": {1: 2}})


# Mentors with a cache.

GROUPS = [CollapsedGroup(f"How many primes lie below {n}00?", (Attempt("24", 0.0),), answer="25") for n in range(4)]


class Varied:
    """A backend that answers differently each time, in thinking too, and says what determines its replies."""

    def __init__(self, identity="model m", verdicts=("HIGH",), fails=()):
        self.identity = identity
        self.asked = Counter()
        self.verdicts = verdicts
        self.fails = set(fails)
        self.lock = threading.Lock()

    def chat(self, messages, *, role, timeout, schema=None):
        with self.lock:
            number = self.asked.total()
            self.asked[role] += 1
        if number in self.fails:
            raise BackendError("503")
        letters = "".join("abcdefghij"[int(digit)] for digit in str(number))
        texts = {
            Role.ATTRIBUTION: said.diagnosis(f"mistakes {letters} for a prime"),
            Role.GENERATION: f"What are the divisors of number {letters}?",
            Role.JUDGMENT: said.verdict(self.verdicts[number % len(self.verdicts)], f"critique {letters}"),
            Role.REPAIR: said.repaired(f"Think about number {letters}."),
        }
        return Reply(texts[role], Usage(100, 10), thinking=f"hm {letters}")


class Gone:
    """The same backend when its endpoint is gone."""

    def __init__(self, identity="model m"):
        self.identity = identity
        self.asked = 0

    def chat(self, messages, *, role, timeout, schema=None):
        self.asked += 1
        raise BackendError("connection refused")


def without_time(guidance):
    return [guidance.hint, guidance.origin, guidance.diagnosis, guidance.drafts, guidance.reason]


@pytest.mark.parametrize("verdicts", [("HIGH",), ("LOW", "LOW", "LOW", "HIGH"), ("LOW",), ("gibberish", "HIGH")])
def test_a_repeated_run_gets_the_same_guidance_without_a_request(tmp_path, verdicts):
    first = Mentor(Varied(verdicts=verdicts), cache_dir=tmp_path).guide(GROUPS)
    gone = Gone()
    second = Mentor(gone, cache_dir=tmp_path).guide(GROUPS)
    assert gone.asked == 0
    assert list(map(without_time, second)) == list(map(without_time, first))
    for before, after in zip(first, second, strict=True):
        assert [call.role for call in after.calls] == [call.role for call in before.calls]
        assert [call.thinking_chars for call in after.calls] == [call.thinking_chars for call in before.calls]
        assert all((call.replayed, call.seconds, call.usage) == (True, 0.0, Usage()) for call in after.calls)
        assert not any(call.replayed for call in before.calls)


def test_the_same_request_twice_for_one_group_gets_two_replies_and_both_again_when_replayed(tmp_path):
    backend = Varied(verdicts=("LOW",))
    (first,) = Mentor(backend, cache_dir=tmp_path, max_refine=1).guide(GROUPS[:1])
    assert backend.asked[Role.GENERATION] == 2
    texts = [draft.text for draft in first.drafts]
    assert len(set(texts)) == 2
    (second,) = Mentor(Gone(), cache_dir=tmp_path, max_refine=1).guide(GROUPS[:1])
    assert [draft.text for draft in second.drafts] == texts


def test_a_failed_request_is_no_draw_so_that_the_run_is_replayed_without_it(tmp_path):
    (first,) = Mentor(Varied(fails={1}), cache_dir=tmp_path).guide(GROUPS[:1])
    assert [call.error for call in first.calls] == [None, "BackendError: 503", None, None]
    gone = Gone()
    (second,) = Mentor(gone, cache_dir=tmp_path).guide(GROUPS[:1])
    assert (second.hint, gone.asked, len(second.calls)) == (first.hint, 0, 3)


def test_groups_that_ask_the_same_at_the_same_time_get_the_hints_that_are_replayed(tmp_path):
    first = Mentor(Varied(), cache_dir=tmp_path).guide(GROUPS[:1] * 8)
    second = Mentor(Gone(), cache_dir=tmp_path).guide(GROUPS[:1] * 8)
    assert {guidance.hint for guidance in second} == {first[0].hint}
    assert [guidance.hint for guidance in first] == [guidance.hint for guidance in second]


@pytest.mark.parametrize(
    "change", [{"identity": "model n"}, {"domain": "general"}, {"group": "another question"}, {"identity": None}]
)
def test_what_changes_the_reply_is_asked_anew(tmp_path, change):
    Mentor(Varied(), cache_dir=tmp_path).guide(GROUPS[:1])
    gone = Gone(change.get("identity", "model m"))
    group = replace(GROUPS[0], question=change.get("group", GROUPS[0].question))
    (guidance,) = Mentor(gone, cache_dir=tmp_path, domain=change.get("domain", "math")).guide([group])
    assert (guidance.origin, gone.asked > 0) == (HintOrigin.FAILED, True)


def test_a_backend_that_does_not_say_what_determines_its_replies_is_not_cached(tmp_path):
    for _ in range(2):
        backend = ScriptedBackend(lambda role, messages: Varied().chat(messages, role=role, timeout=1.0))
        Mentor(backend, cache_dir=tmp_path).guide(GROUPS[:1])
        assert len(backend.requests) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_replayed_call_costs_no_budget(tmp_path):
    Mentor(Varied(), cache_dir=tmp_path).guide(GROUPS[:3])
    backend = Varied()
    guidances = Mentor(backend, cache_dir=tmp_path, budget={"run_calls": 3}, max_concurrency=1).guide(GROUPS)
    assert [guidance.origin for guidance in guidances] == [HintOrigin.ACCEPTED] * 4
    assert backend.asked.total() == 3


def test_a_reply_that_comes_after_the_deadline_is_there_the_next_time(tmp_path):
    release, asked = threading.Event(), Varied()

    class Slow:
        identity = asked.identity

        def chat(self, messages, *, role, timeout, schema=None):
            release.wait(10)
            return asked.chat(messages, role=role, timeout=timeout)

    others = set(threading.enumerate())
    mentor = Mentor(Slow(), cache_dir=tmp_path, deadline=0.2)
    assert mentor.guide(GROUPS[:1])[0].origin is HintOrigin.FAILED
    release.set()
    for thread in set(threading.enumerate()) - others:
        thread.join(10)
    backend = Varied()
    assert Mentor(backend, cache_dir=tmp_path).guide(GROUPS[:1])[0].calls[0].replayed
    assert backend.asked[Role.ATTRIBUTION] == 0


def test_hostile_replies_do_not_break_the_cache(tmp_path):
    class Hostile:
        identity = "hostile"

        def chat(self, messages, *, role, timeout, schema=None):
            return {Role.ATTRIBUTION: Reply(None), Role.GENERATION: "bare"}.get(role, Reply(AWKWARD))

    for _ in range(2):
        (guidance,) = Mentor(Hostile(), cache_dir=tmp_path).guide(GROUPS[:1])
        assert guidance.origin is HintOrigin.FALLBACK
    json.dumps(guidance.reason)
