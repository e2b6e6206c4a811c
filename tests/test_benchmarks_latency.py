"""The latency benchmark: a run in small gives every figure, and what it says of a slow or growing mentor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trl_mentor import Mentor, OpenAIBackend
from trl_mentor.records import Guidance, HintOrigin, Role
from trl_mentor.templating import SLOTS

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import mentor_latency  # noqa: E402
import stub_server  # noqa: E402


def test_a_run_in_small_gives_every_figure(tmp_path):
    out = tmp_path / "latency.json"
    options = ["--latency", "0.01", "--repetitions", "1", "--interventions", "40", "--json", str(out)]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "mentor_latency.py"), *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-4000:]  # at this latency the targets are out of reach
    result = json.loads(out.read_text())
    assert json.loads(done.stdout) == result
    assert result["c64_vs_chain"] >= 1
    assert result["c16_vs_ideal"] >= 1
    assert result["most_requests_at_once"] > 16
    assert result["rss_mb"] - result["rss_mb_after_a_tenth"] == pytest.approx(result["rss_growth_mb"], abs=0.02)


def test_a_missed_target_is_named():
    figures = {"c64_vs_chain": 1.31, "c16_vs_ideal": 1.3, "rss_growth_mb": 20.5}
    assert mentor_latency.missed(figures) == [
        "c64_vs_chain is 1.31, the target is 1.3",
        "rss_growth_mb is 20.5, the target is 20.0",
    ]


def test_a_group_that_took_another_way_is_not_measured():
    with pytest.raises(SystemExit, match="did not go the way of 3 calls"):
        mentor_latency.check([Guidance("Read again.", HintOrigin.FALLBACK)])


def test_the_stub_server_knows_who_asks_and_answers_so_that_a_hint_is_accepted():
    with stub_server.threaded(stub_server.good_player(0.0)) as server:
        backend = OpenAIBackend("stub", base_url=server.url)
        (guidance,) = Mentor(backend).guide([mentor_latency.group(0)])
        backend.close()
    assert guidance.hint == stub_server.GOOD["generation"]
    assert server.asked == {Role.ATTRIBUTION: 1, Role.GENERATION: 1, Role.JUDGMENT: 1}


@pytest.mark.parametrize("role", ["attribution", "judgment", "repair", "generation"])
def test_the_stub_server_tells_the_roles_apart_without_a_schema_too(role):
    mentor = Mentor(OpenAIBackend("stub", base_url="http://localhost:1/v1"))
    slots = {name: "x" for names in SLOTS.values() for name in names}
    slots |= {"question": '{"verdict": 1, "hint": 2}', "attempts": ('"misconceptions"',), "diagnosis": ("x",)}
    messages = mentor.plan.templates.messages(Role(role), slots)
    assert stub_server.role_of({"messages": messages}) == role
