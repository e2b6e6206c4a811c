"""The charts of a report: plain SVG, the same each time, with every foreign text as text."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import matplotlib
import pytest

from trl_mentor.counters import Booking, Counters
from trl_mentor.journal import JOURNAL_PATH, Journal, read_journal
from trl_mentor.records import (
    Arm,
    Attempt,
    Call,
    Cause,
    CollapsedGroup,
    Draft,
    Evaluation,
    Guidance,
    HintOrigin,
    Intervention,
    Quality,
    RerollOutcome,
    Return,
    Role,
    RunInfo,
    Verdict,
    VerdictSource,
)
from trl_mentor.report.drawing import label
from trl_mentor.report.figure_records import Figures
from trl_mentor.report.figures import report_figures
from trl_mentor.report.pictures import CHARTS
from trl_mentor.spending import RoleSpending, Spending

HOSTILE = (
    "<script>alert(1)</script>",
    "$\\frac{",
    "]]></svg><img src=x onerror=alert(1)>",
    "&amp; \"quoted\" 'text' -->",
    "\x00\x1b[31m\ufffe\ud800\u202ereversed",
    "日本語 🎓 \u0627\u0644\u062c\u0628\u0631",
    "a long topic " * 30,
)
ALLOWED = {
    "svg": {"viewBox", "role", "stroke-linejoin", "font-size"},
    "title": set(),
    "desc": set(),
    "path": {"d", "fill", "fill-opacity", "opacity", "transform"},
    "text": {"x", "y", "transform", "text-anchor", "font-size", "font-weight", "fill"},
}
STROKE = re.compile(r"stroke(-(width|linecap|linejoin|opacity|dasharray|dashoffset))?")


def written(folder: Path, *, topics: tuple[str | None, ...] = HOSTILE, steps: int = 12) -> Figures:
    """The figures of a run in which everything that a chart shows has happened."""
    journal = Journal(folder / JOURNAL_PATH)
    journal.begin(0, RunInfo("mentor", "inline", control_fraction=0.4))
    arms, outcomes = [*Arm], [RerollOutcome.RESCUED, RerollOutcome.STILL_COLLAPSED, RerollOutcome.HINT_SATURATED]
    for step in range(steps):
        for number, topic in enumerate(topics):
            low = Draft("vague", Role.GENERATION, 1, Verdict(Quality.LOW, "vague", VerdictSource.RULES))
            high = Draft("good", Role.REPAIR, 1, Verdict(Quality.HIGH, "good", VerdictSource.JUDGE))
            guidance = Guidance("good", HintOrigin.ACCEPTED, (), (low, high), (Call(Role.GENERATION, 1.0),))
            group = CollapsedGroup("q", (Attempt("no"),), topic=topic, cause=[*Cause][number % 6])
            outcome, arm = outcomes[(step + number) % 3], arms[(step + number // 2) % 3]
            journal.append(
                Intervention(
                    step,
                    "mentor",
                    group,
                    guidance,
                    outcome,
                    ("new",),
                    (1.0,),
                    arm=arm,
                    reliances=(-0.1 * number,),
                )
            )
            journal.returned(Return(step, "0" * 16, 0, outcome, arm, number % 2, 4, probe=step % 2 == 0))
        spent = Spending({"generation": RoleSpending(calls=7, prompt_tokens=900, completion_tokens=90)})
        journal.book(
            Booking(
                step,
                Counters(
                    batches=1,
                    groups=16,
                    collapsed=7,
                    all_correct=3,
                    rescued=3,
                    still_collapsed=2,
                    hint_saturated=2,
                    cause_knowledge=7,
                    policy_tokens=800,
                    reroll_tokens=200,
                    completions=64,
                    successes=20 + step,
                    seconds=3.0,
                    mentor_seconds=1.0,
                    mentor=spent,
                ),
            )
        )
        journal.evaluated(Evaluation(step, {"eval_reward": step / 12, "eval_<b>$x_reward": 0.5}))
    journal.close()
    return report_figures(read_journal(folder))


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    return written(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def drawn(figures: Figures) -> dict[str, str]:
    return {name: draw(figures) for name, draw in CHARTS.items()}


def parsed(svg: str) -> Iterator[tuple[str, Element]]:
    """The elements with their names, without the name space."""
    for element in ElementTree.fromstring(svg).iter():
        yield element.tag.removeprefix("{http://www.w3.org/2000/svg}"), element


def texts(svg: str | None) -> list[str]:
    assert svg is not None
    return [element.text or "" for name, element in parsed(svg) if name == "text"]


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_shapes_and_texts_without_ids_styles_links_or_scripts(drawn, name):
    svg = drawn[name]
    elements = list(parsed(svg))
    assert [tag for tag, _ in elements[:3]] == ["svg", "title", "desc"]
    assert all(element.text for _, element in elements[1:3])
    for tag, element in elements:
        assert {key for key in element.attrib if not STROKE.fullmatch(key)} <= ALLOWED[tag]
        assert not any("url(" in value or "#0102" in value for value in element.attrib.values())
    assert len(elements) > 10


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_takes_the_colour_of_its_texts_from_the_page(drawn, name):
    elements = list(parsed(drawn[name]))
    assert {element.attrib["fill"] for tag, element in elements if tag == "text"} == {"currentColor"}
    colours = {element.attrib.get(key) for _, element in elements for key in ("fill", "stroke")}
    assert not colours & {"#000000", "#ffffff", "black", "white"}


def test_a_chart_is_the_same_each_time(figures, drawn):
    assert drawn["recovery"] == CHARTS["recovery"](figures)


@pytest.mark.parametrize("name", ["topics", "recovery"])
def test_hostile_topics_stand_in_a_chart_as_text(drawn, name):
    svg = drawn[name]
    shown = texts(svg)
    for topic in ("<script>alert(1)</script>", "$\\frac{", "&amp; \"quoted\" 'text' -->", "[31m\ufffd\ufffdreversed"):
        assert any(topic in text for text in shown), topic
    assert any(text.strip().partition("  ")[0].endswith("\u2026") for text in shown)
    assert "<script" not in svg
    assert "<img" not in svg


def test_the_name_of_an_evaluation_is_text_too(drawn):
    assert "eval_<b>$x_reward" in texts(drawn["learning"])


def test_a_label_is_one_short_line_of_characters_that_xml_allows():
    assert label("two\nlines\tand  more") == "two lines and more"
    assert label("\x00\ud800\ufffe\u202e\x07x") == "\ufffd\ufffd\ufffdx"
    assert label("y" * 100) == "y" * 35 + "\u2026"


def test_charts_say_the_numbers_of_the_figures(figures, drawn):
    assert "11.9 k in 84 calls" in texts(drawn["spending"])
    every = figures.recovery.uplift[0]
    generic = figures.recovery.uplift_over_generic[0]
    counts = f"n={every.hint.groups}/{generic.control.groups}/{every.control.groups}"
    assert any(text.startswith("all groups") and text.endswith(counts) for text in texts(drawn["recovery"]))
    assert {"84, 0% HIGH", "84, 100% HIGH"} <= set(texts(drawn["drafts"]))
    assert any(
        text.startswith(f"Successes under a hint: {figures.reliance.count},") for text in texts(drawn["reliance"])
    )


def test_an_empty_journal_has_no_charts(tmp_path):
    Journal(tmp_path / JOURNAL_PATH).close()
    nothing = report_figures(read_journal(tmp_path))
    assert [draw(nothing) for draw in CHARTS.values()] == [None] * len(CHARTS)


def test_a_run_of_one_batch_has_charts(tmp_path):
    tiny = written(tmp_path, topics=(None,), steps=1)
    shown = {name: draw(tiny) for name, draw in CHARTS.items()}
    assert [name for name, svg in shown.items() if svg is None] == ["topics"]
    assert all(texts(svg) for svg in shown.values() if svg is not None)


def test_a_run_that_withheld_no_hint_shows_what_its_rerolls_brought_and_says_so(tmp_path):
    journal = Journal(tmp_path / JOURNAL_PATH)
    group, guidance = CollapsedGroup("q", (Attempt("no"),)), Guidance("good", HintOrigin.ACCEPTED)
    journal.append(Intervention(0, "mentor", group, guidance, RerollOutcome.RESCUED, ("new",), (1.0,)))
    journal.close()
    svg = CHARTS["recovery"](report_figures(read_journal(tmp_path)))
    assert any(text.startswith("re-rolled: hint") and "1 of 1" in text for text in texts(svg))
    assert "No hint was withheld by lot" in svg


def test_without_matplotlib_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from trl_mentor.report.drawing import Drawing, svg\n"
        "svg(Drawing('a', 'b', 1.0, print))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith(
        "trl_mentor.errors.ConfigError: the charts of a report are drawn by"
    )
    assert "pip install 'trl-mentor[report]'" in done.stderr


def test_charts_leave_the_settings_of_matplotlib_alone_and_do_not_look_at_them(figures):
    with matplotlib.rc_context({"text.usetex": True, "font.size": 40}):
        drawn = CHARTS["topics"](figures)
        assert (matplotlib.rcParams["text.usetex"], matplotlib.rcParams["font.size"]) == (True, 40)
    assert matplotlib.rcParams["svg.fonttype"] != "none"
    assert drawn == CHARTS["topics"](figures)


def test_charts_need_no_display():
    code = (
        "import sys\n"
        "from trl_mentor.report.drawing import Drawing, svg\n"
        "svg(Drawing('a', 'b', 1.0, lambda figure: figure.subplots().plot([1, 2])))\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
