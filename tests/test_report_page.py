"""The report as a file: what is in it, what is left out, and what a broken or hostile journal does to it."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import journals
import pytest
from statsmodels.stats.proportion import confint_proportions_2indep
from test_journal import intervention

from trl_mentor.cli.main import main
from trl_mentor.journal import Journal, read_journal
from trl_mentor.records import Arm, RerollOutcome, Return, RunInfo
from trl_mentor.report import formulas, reading
from trl_mentor.report.figures import report_figures
from trl_mentor.report.formulas import Formulas, mathml
from trl_mentor.report.page import write_report
from trl_mentor.report.pictures import pictures
from trl_mentor.report.texts import shown
from trl_mentor.trial import prompt_key


class Page(HTMLParser):
    """What a page holds: its elements in their order, and the text of its scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._open = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._open != "style":
            self.text += data

    @property
    def index(self) -> dict[str, Any]:
        return next(unpacked(text) for attrs, text in self.scripts if attrs.get("id") == "index")

    @property
    def items(self) -> list[dict[str, Any]]:
        chunks = [unpacked(text) for attrs, text in self.scripts if attrs.get("class") == "chunk"]
        return [item for chunk in chunks for item in chunk["items"]]


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def source(text: Any) -> str:
    """A shown text as it was in the journal."""
    return text if isinstance(text, str) else "".join(part if isinstance(part, str) else part["tex"] for part in text)


def report(run: Path) -> Page:
    return Page(write_report(run))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return journals.write_run(tmp_path_factory.mktemp("run"), 120)


@pytest.fixture(scope="module")
def page(run: Path) -> Page:
    return report(run)


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "mentor" / "journal.jsonl").read_text().splitlines()]


def test_every_intervention_is_in_the_page_with_every_text_as_the_journal_has_it(run, page):
    written = [line for line in lines(run) if "group" in line]
    assert len(page.items) == len(written) == 120
    for item, line in zip(page.items, written, strict=True):
        group, guidance = line["group"], line["guidance"]
        assert source(item["question"]) == group["question"]
        assert [source(attempt["text"]) for attempt in item["attempts"]] == [a["text"] for a in group["attempts"]]
        assert [source(draft["critique"]) for draft in item["guidance"]["drafts"]] == [
            draft["verdict"]["critique"] for draft in guidance["drafts"]
        ]
        assert [source(new["text"]) for new in item["completions"]] == line["completions"]
        assert [new["rewards"] for new in item["completions"]] == [
            {name: values[k] for name, values in line["rewards"].items()} for k in range(len(line["completions"]))
        ]
        assert source(item["guidance"]["hint"] or "") == (guidance["hint"] or "")


def test_no_text_of_the_journal_becomes_an_element_or_a_script(page):
    scripts = [attrs for attrs, _ in page.scripts]
    assert [attrs.get("type") for attrs in scripts].count(None) == 1  # the page's own
    assert {attrs["type"] for attrs in scripts if "type" in attrs} == {"text/plain"}
    assert not [
        tag for tag, attrs in page.tags if tag in ("img", "iframe", "link") or any(a.startswith("on") for a in attrs)
    ]
    assert not [attrs for _, attrs in page.tags if "style" in attrs]
    packed = [text for attrs, text in page.scripts if "type" in attrs]
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", text) for text in packed)
    assert "<b>bold</b> & topics" in page.text  # a topic, in a table


def test_nothing_in_the_page_leads_out_of_it(page):
    addresses = [
        value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href", "xlink:href")
    ]
    assert addresses
    assert all(address.startswith("#") for address in addresses)
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_the_index_says_of_each_intervention_what_the_journal_says(run, page):
    written = [line for line in lines(run) if "group" in line]
    index = page.index
    outcomes = index["facets"]["outcome"]
    assert [outcomes["names"][code] for code in outcomes["codes"]] == [line["outcome"] for line in written]
    assert index["steps"] == [line["step"] for line in written]
    assert index["successes"] == [sum(value == 1.0 for value in line["successes"]) for line in written]
    arms = index["facets"]["arm"]
    assert [arms["names"][code] if code >= 0 else None for code in arms["codes"]] == [line["arm"] for line in written]


def test_every_picture_of_the_figures_is_in_the_page_once(run, page):
    text = (run / "report.html").read_text(encoding="utf-8")
    drawn = pictures(report_figures(read_journal(run)))
    assert {name: svg and text.count(svg) for name, svg in drawn.items()} == dict.fromkeys(drawn, 1)


@pytest.mark.parametrize(
    ("names", "treated", "control"),
    [
        (
            ("re-rolled under their hint", "on the plain question, by lot"),
            {"arm": ["hint"]},
            {"arm": ["control"]},
        ),
        (
            ("rescued", "not rescued"),
            {"outcome": ["rescued"]},
            {"outcome": ["still_collapsed", "skipped"]},
        ),
    ],
    ids=["by lot", "by outcome"],
)
def test_prompts_that_come_round_again_are_compared_with_a_baseline(run, page, names, treated, control):
    returned = [line["returned"] for line in lines(run) if "returned" in line]
    solved = [
        [line["successes"] > 0 for line in returned if all(line[key] in values for key, values in where.items())]
        for where in (treated, control)
    ]
    counts = [number for hits in solved for number in (sum(hits), len(hits))]
    difference = 100 * (counts[0] / counts[1] - counts[2] / counts[3])
    low, high = (100 * end for end in confint_proportions_2indep(*counts, compare="diff", method="newcomb"))
    found = re.search(f"{names[0]}(\\d+) of (\\d+) [^a-z]*{names[1]}(\\d+) of (\\d+) · [^]]*](.*)", page.text)
    assert [int(number) for number in found.groups()[:4]] == counts
    assert found[5] == f"{difference:+.1f} points [{low:+.1f}, {high:+.1f}]"


def test_later_answers_to_the_same_prompt_are_told_with_the_intervention_that_they_follow(tmp_path):
    journal = Journal(tmp_path / "mentor" / "journal.jsonl")
    key = prompt_key("What is 2+2?")
    journal.append(intervention(1))
    journal.append(intervention(4))
    journal.append(intervention(4, prompt="Another?"))
    journal.returned(Return(3, key, 1, RerollOutcome.RESCUED, Arm.HINT, 2, 4))
    journal.returned(Return(9, key, 4, RerollOutcome.RESCUED, None, 0, 4, probe=True))
    journal.close()
    page = report(tmp_path)
    assert [item["later"] for item in page.items] == [
        {"returns": [{"step": 3, "successes": 2, "completions": 4, "probe": False}], "others": [2]},
        {"returns": [{"step": 9, "successes": 0, "completions": 4, "probe": True}], "others": [1]},
        {"returns": [], "others": []},
    ]
    assert page.index["returned"] == [2, 1, 0]


def test_a_prompt_that_all_interventions_share_does_not_make_the_page_grow_with_their_square(tmp_path):
    journal = Journal(tmp_path / "mentor" / "journal.jsonl")
    for step in range(300):
        journal.append(intervention(step))
    journal.close()
    assert max(len(item["later"]["others"]) for item in report(tmp_path).items) == 20


def test_a_long_text_is_cut_before_its_last_third_and_says_how_much_is_left_out():
    text = "a" * 5_000 + "b" * 5_000
    head, gap, tail = shown(text, 3_000, Formulas(0, {}))
    assert (head, gap, tail) == ("a" * 2_000, {"gap": 7_000}, "b" * 1_000)


def test_texts_are_cut_so_that_all_of_them_fit_into_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "TEXT_BUDGET", 20_000)
    journal = Journal(tmp_path / "mentor" / "journal.jsonl")
    for step in range(5):
        journal.append(intervention(step, text="long " * 100_000))
    journal.close()
    page = report(tmp_path)
    assert [item["attempts"][0]["text"][1] for item in page.items] == [{"gap": 500_000 - 2_000}] * 5
    assert "Texts are cut to 2,000 characters each" in page.text


def test_only_the_newest_of_very_many_interventions_are_listed_and_the_figures_count_all(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LIST_LIMIT", 10)
    page = report(journals.write_run(tmp_path, 48))
    assert (len(page.items), page.index["first"], len(page.index["steps"])) == (10, 39, 10)
    assert "the newest 10 of 48 interventions" in page.text
    assert re.search(r"interventions\s*48", page.text)


def test_a_run_that_still_goes_on_is_shown_up_to_its_last_whole_line(tmp_path):
    run = journals.write_run(tmp_path, 16)
    with (run / "mentor" / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"schema": 1, "time": "2026-01-01T00:00:00", "step": 7, "strat')
    page = report(run)
    assert len(page.items) == 16
    assert "1 lines of the journal could not be read" in page.text
    assert "As of " in page.text


def test_steps_that_a_resumed_run_did_again_are_shown_as_it_did_them(tmp_path):
    journal = Journal(tmp_path / "mentor" / "journal.jsonl")
    journal.begin(0)
    for step in range(3):
        journal.append(intervention(step, text="first"))
    journal.begin(2)
    journal.append(intervention(2, text="second"))
    journal.close()
    page = report(tmp_path)
    assert [item["attempts"][0]["text"] for item in page.items] == ["first", "first", "second"]
    assert "1 records of steps that were done again" in page.text


@pytest.mark.parametrize("strategy", ["none", "resample"])
def test_a_run_without_a_mentor_has_a_report_too(tmp_path, strategy):
    journal = Journal(tmp_path / "mentor" / "journal.jsonl")
    journal.begin(0, RunInfo(strategy))
    record = replace(intervention(0), strategy=strategy, guidance=None, arm=None)
    journal.append(record)
    journal.book(journals.booked([record], 0, random.Random(0)))
    journal.close()
    page = report(tmp_path)
    assert "No hint was drafted." in page.text
    assert page.items[0]["guidance"] is None
    assert page.index["facets"]["verdict"]["names"] == ["no_mentor"]


def test_the_page_says_how_re_rolled_groups_are_trained_and_when(tmp_path):
    journal = Journal(tmp_path / "mentor" / "journal.jsonl")
    journal.begin(0, RunInfo("mentor", rescue="single, original", dosage="from 15% of the steps on"))
    journal.close()
    text = report(tmp_path).text
    assert "re-rolled groups trained as single, original" in text
    assert "mentored from 15% of the steps on" in text


def test_an_empty_journal_makes_a_page_that_says_so(tmp_path):
    Journal(tmp_path / "mentor" / "journal.jsonl").close()
    page = report(tmp_path)
    assert "The journal has nothing yet" in page.text
    assert page.index["steps"] == page.items == []


# Formulas


def names(node: Any) -> list[str]:
    return [] if isinstance(node, str) else [node[0], *(name for child in node[2:] for name in names(child))]


@pytest.mark.parametrize(
    "text", ["$x^2$", "$$\\frac{a}{b}$$", "\\(x_1\\)", "\\[\\sqrt{2}\\]"], ids=["dollar", "dollars", "round", "square"]
)
def test_formulas_in_all_four_delimiters_become_mathml(text):
    used: dict[str, Any] = {}
    assert Formulas(100, used).parts(f"so {text} holds") == ["so ", {"tex": text}, " holds"]
    assert set(names(used[text])) & {"msup", "mfrac", "msub", "msqrt"}


@pytest.mark.parametrize(
    "text", ["from $5 to $10", "\\$5 and \\$6", "$HOME and $PATH", "$ x $", "$a$5", "no \\ math", ""]
)
def test_prices_and_variables_are_no_formulas(text):
    assert Formulas(1000, {}).parts(text) == [text]


def test_markup_in_a_formula_is_its_text():
    node = mathml("\\text{<script>alert(1)</script>} \\href{javascript:alert(1)}{x} \\style{color:red}{y}")
    assert set(names(node)) <= formulas.TAGS
    assert '"<script>alert(1)</script>"' in json.dumps(node)
    assert "javascript" not in json.dumps(node)
    assert "color" not in json.dumps(node)


@pytest.mark.parametrize(
    "tex",
    [
        "\\frac{",
        "\\left(",
        "x^a^b",
        "_",
        "\\begin{matrix}" * 30,
        "{" * 500,
        "\\sqrt" * 100,
        "\\genfrac{" * 50,
        "x" * 501,
        "\\newcommand{\\a}{\\b\\b}\\a",
        "\\def\\a{\\a\\a}\\a",
        "x\u202ey",
        "\ud800",
        "{" * 100 + "x" + "}" * 100,
    ],
    ids=lambda tex: ascii(tex[:16]),
)
def test_what_is_no_latex_or_would_not_end_stays_text(tex):
    assert mathml(tex) is None
    assert Formulas(1000, {}).parts(f"a ${tex}$") == [f"a ${tex}$"]


def test_beyond_the_budget_the_source_is_shown_and_counted():
    found = Formulas(4, {})
    assert found.parts("$abcd$ $abcd$ $e$") == [{"tex": "$abcd$"}, " ", {"tex": "$abcd$"}, " $e$"]
    assert found.unconverted == 1


def test_without_the_converter_the_source_is_shown_and_the_page_says_how_to_get_it(tmp_path, run):
    code = (
        "import sys; from pathlib import Path; sys.modules['latex2mathml'] = None; sys.modules['matplotlib'] = None\n"
        "from trl_mentor.report.page import write_report; write_report(sys.argv[1], Path(sys.argv[2]))\n"
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, run, tmp_path / "page.html"], check=True)
    page = Page(tmp_path / "page.html")
    assert "latex2mathml is not installed: pip install 'trl-mentor[report]'" in page.text
    assert "matplotlib is not installed" in page.text
    assert len(page.items) == 120


# The command


def test_the_command_writes_into_the_run_unless_told_otherwise(run, tmp_path, capsys):
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert main(["report", str(run / "mentor" / "journal.jsonl"), "-o", str(tmp_path / "a.html")]) == 0
    assert len(Page(tmp_path / "a.html").items) == 120


def test_the_command_says_what_is_wrong_and_leaves_no_half_page(run, tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "no journal at" in capsys.readouterr().err
    assert main(["report", str(run), "-o", str(tmp_path / "missing" / "a.html")]) == 2
    assert "No such file or directory" in capsys.readouterr().err
    (tmp_path / "folder").mkdir()
    assert main(["report", str(run), "-o", str(tmp_path / "folder")]) == 2
    assert "folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
