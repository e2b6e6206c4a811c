"""Requests take turns until they are sent, and no longer."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from trl_mentor.backends import turns
from trl_mentor.backends.openai import OpenAIBackend
from trl_mentor.records import Role

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import stub_server

ASK = [{"role": "user", "content": "Is it good?"}]
MANY = 16


def test_a_request_gives_up_its_turn_when_it_is_sent_and_not_when_it_is_answered(monkeypatch):
    monkeypatch.setattr(turns, "_LONGEST", 600.0)
    everyone = asyncio.Event()

    async def answer_when_all_have_asked(asked, writer, stub):
        if stub.busy == MANY:
            everyone.set()
        await everyone.wait()
        await stub_server.send(writer, stub_server.completion("fine"))
        return True

    with (
        stub_server.threaded(answer_when_all_have_asked) as server,
        closing(OpenAIBackend("stub", base_url=server.url)) as backend,
        ThreadPoolExecutor(MANY) as threads,
    ):
        for _ in range(2):  # over new connections and over kept ones
            asked = [threads.submit(backend.chat, ASK, role=Role.JUDGMENT, timeout=60.0) for _ in range(MANY)]
            assert [future.result().text for future in asked] == ["fine"] * MANY
            everyone.clear()
    assert server.most_busy == MANY


def test_one_at_a_time_begins_and_a_turn_that_nobody_ends_is_over_soon():
    async def two() -> list[str]:
        taken, said, end = turns.Turns(), [], asyncio.Event()

        async def request(name: str) -> None:
            async with taken.one():
                said.append(name)
                await end.wait()

        first, second = asyncio.create_task(request("first")), asyncio.create_task(request("second"))
        for _ in range(10):
            await asyncio.sleep(0)
        alone = list(said)
        while len(said) < 2:
            await asyncio.sleep(0.01)
        end.set()
        await asyncio.gather(first, second)
        return alone

    assert asyncio.run(two()) == ["first"]


def test_a_turn_is_free_again_after_a_request_that_failed_or_was_given_up():
    async def several() -> int:
        taken, entered = turns.Turns(), 0
        for error in (ValueError, asyncio.CancelledError):
            try:
                async with taken.one():
                    entered += 1
                    raise error
            except error:
                pass
        async with asyncio.timeout(10.0), taken.one():
            return entered

    assert asyncio.run(several()) == 2
