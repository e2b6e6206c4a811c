"""The report as a person sees it: in a real browser, with its console, its policy and its network watched."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import journals
import pytest
from browser import CHROMIUM, REQUIRED, launched
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from trl_mentor.report.page import write_report

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists() and not REQUIRED,
    reason=f"there is no browser at {CHROMIUM}; install Debian's chromium or name another one with CHROMIUM",
)

INTERVENTIONS = 120


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = journals.write_run(tmp_path_factory.mktemp("run"), INTERVENTIONS)
    write_report(made)
    return made


@pytest.fixture(scope="module")
def written(run: Path) -> list[dict[str, Any]]:
    """The interventions of the journal, read by hand."""
    lines = [json.loads(line) for line in (run / "mentor" / "journal.jsonl").read_text().splitlines()]
    return [line for line in lines if "group" in line]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    assert CHROMIUM.exists(), f"there is no browser at {CHROMIUM}"
    with sync_playwright() as playwright, launched(playwright) as browser:
        yield browser


class Watched:
    """A page with all that it says, asks for and does wrong."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.address = address
        self.complaints: list[str] = []
        self.requests: list[str] = []
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.error('policy', event.violatedDirective));"
        )
        self.page: Page = context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))

    def _said(self, message: ConsoleMessage) -> None:
        self.complaints.append(message.text)

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)

    def open(self, hash_: str = "") -> Page:
        self.page.goto("about:blank")
        self.requests.clear()
        self.page.goto(self.address + hash_)
        expect(self.page.locator("html[data-ready]")).to_be_attached()
        return self.page


@pytest.fixture
def watched(chromium: Browser, run: Path) -> Iterator[Watched]:
    with chromium.new_context(viewport={"width": 1400, "height": 900}) as context:
        context.set_default_timeout(60_000)
        watched = Watched(context, (run / "report.html").as_uri())
        yield watched
        assert watched.complaints == []
        assert [url for url in watched.requests if not url.startswith(watched.address)] == []
        assert watched.page.evaluate("window.hacked") is None


def found(page: Page) -> str:
    return page.locator("#found").inner_text()


def seen(text: str) -> str:
    """A text as the page shows it: what would be invisible is written out, and blanks do not count."""
    shown = re.sub(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]",
        lambda match: f"\\x{ord(match[0]):02x}" if ord(match[0]) < 256 else f"\\u{ord(match[0]):04x}",
        text,
    )
    return squeezed(shown)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_hostile_texts_are_seen_as_the_texts_that_they_are(watched, written):
    hostile = {}
    for number, line in enumerate(written, 1):
        for text in journals.HOSTILE:
            if text in line["group"]["question"] and line["completions"]:
                hostile[text] = number
    assert len(hostile) >= 6
    page = watched.open("#i=1&tex=1")
    for text, number in hostile.items():
        page.goto(f"{watched.address}#i={number}&tex=1")
        expect(page.locator("#detail h3")).to_contain_text(f"Intervention {number} ")
        shown = squeezed(page.locator("#detail").inner_text())
        # question, cause, four attempts with what the verifier says, diagnosis, drafts, critiques, rewards ...
        assert shown.count(seen(text)) >= 10, text
    assert page.locator("#detail script, #detail img, #detail svg, #detail b, #detail textarea").count() == 0


def test_formulas_are_drawn_and_can_be_seen_as_latex(watched, written):
    plain = next(n for n, line in enumerate(written, 1) if "\\frac{a+b}{2}" in line["group"]["question"])
    page = watched.open(f"#i={plain}")
    fraction = page.locator("#detail math mfrac").first
    expect(fraction).to_be_visible()
    assert fraction.evaluate("(node) => node instanceof MathMLElement && node.getBoundingClientRect().height > 5")
    page.get_by_label("formulas as LaTeX").check()
    expect(page.locator("#detail math")).to_have_count(0)
    expect(page.locator("#detail .text").first).to_contain_text("$x = \\frac{a+b}{2}$")


def test_filters_show_exactly_what_the_journal_has(watched, written):
    page = watched.open()
    assert found(page) == f"{INTERVENTIONS} of {INTERVENTIONS} interventions"
    for name, value in (
        ("outcome", lambda line: line["outcome"]),
        ("cause", lambda line: line["group"]["cause"]),
        ("arm", lambda line: line["arm"]),
        ("topic", lambda line: line["group"]["topic"]),
    ):
        counts = Counter(value(line) for line in written if value(line) is not None)
        options = page.locator(f"[name={name}] option").evaluate_all("(all) => all.map((one) => one.value)")
        assert sorted(options[1:]) == sorted(counts)
        rarest, number = counts.most_common()[-1]
        page.locator(f"[name={name}]").select_option(rarest)
        expect(page.locator("#found")).to_have_text(f"{number} of {INTERVENTIONS} interventions")
        page.get_by_role("button", name="reset").click()
        expect(page.locator("#found")).to_have_text(f"{INTERVENTIONS} of {INTERVENTIONS} interventions")
    page.locator("[name=from]").fill("2")
    page.locator("[name=to]").fill("3")
    expect(page.locator("#found")).to_have_text(f"32 of {INTERVENTIONS} interventions")


def test_the_search_reads_every_text_and_takes_no_word_for_a_pattern(watched, written):
    page = watched.open()
    for query in ("</textarea></title>", "format the", "\\boxed{42}", ".*"):
        expected = sum(query in json.dumps(line, ensure_ascii=False).replace("\\\\", "\\") for line in written)
        page.locator("[name=q]").fill(query)
        expect(page.locator("#found")).to_have_text(f"{expected} of {INTERVENTIONS} interventions")


def test_pages_sorting_and_keys(watched, written):
    page = watched.open()
    rows = page.locator("#rows li a")
    assert rows.count() == 50
    assert "#120 " in rows.first.inner_text()
    page.locator("body").press("n")
    expect(rows.first).to_contain_text("#70 ")
    expect(page.locator("#pager")).to_contain_text("page 2 of 3")
    page.locator("[name=sort]").select_option("oldest")
    expect(rows.first).to_contain_text("#1 ")
    rows.first.press("Enter")
    expect(page.locator("#detail h3")).to_contain_text("Intervention 1 ")
    page.keyboard.press("j")
    expect(page.locator("#detail h3")).to_contain_text("Intervention 2 ")
    expect(page.locator("#rows a[aria-current]")).to_contain_text("#2 ")
    page.keyboard.press("k")
    expect(page.locator("#detail h3")).to_contain_text("Intervention 1 ")
    page.keyboard.press("/")
    expect(page.locator("[name=q]")).to_be_focused()
    page.locator("[name=sort]").select_option("best")
    best = max(sum(line["successes"]) / max(len(line["successes"]), 1) for line in written)
    expect(rows.first).to_contain_text(f"{best * 4:.0f}/4 succeed")


def test_a_link_to_an_intervention_opens_it_with_its_filters_and_the_way_back_works(watched, written):
    number, line = next((n, line) for n, line in enumerate(written, 1) if line["outcome"] == "rescued")
    page = watched.open(f"#i={number}&outcome=rescued")
    expect(page.locator("#detail h3")).to_contain_text(f"Intervention {number} step {line['step']}")
    rescued = sum(line["outcome"] == "rescued" for line in written)
    assert found(page).startswith(f"{rescued} of ")
    assert page.locator("[name=outcome]").input_value() == "rescued"
    other = page.locator("#rows a:not([aria-current])").first
    name = re.search(r"#(\d+)", other.inner_text())[1]
    other.click()
    expect(page.locator("#detail h3")).to_contain_text(f"Intervention {name} ")
    page.go_back()
    expect(page.locator("#detail h3")).to_contain_text(f"Intervention {number} ")
    watched.open("#i=999")
    expect(page.locator("#detail")).to_have_text("No intervention 999 is listed here.")


def test_a_withheld_hint_is_shown_as_withheld_and_other_hints_are_not(watched, written):
    numbers = {line["arm"]: number for number, line in enumerate(written, 1)}
    page = watched.open(f"#i={numbers['control']}")
    expect(page.locator("#detail .withheld")).to_contain_text("Withheld by lot: this group was re-rolled on the plain")
    watched.open(f"#i={numbers['generic']}")
    expect(page.locator("#detail .withheld")).to_contain_text(
        "Withheld by lot: this group was re-rolled under the fixed"
    )
    watched.open(f"#i={numbers['hint']}")
    expect(page.locator("#detail .lesson")).to_contain_text("Hint")
    expect(page.locator("#detail .withheld")).to_have_count(0)


def test_the_figures_of_the_page_are_those_of_the_journal(watched, run, written):
    page = watched.open()
    outcomes = Counter(line["outcome"] for line in written)
    lines = [json.loads(line) for line in (run / "mentor" / "journal.jsonl").read_text().splitlines()]
    booked = [line["booking"]["counters"] for line in lines if "booking" in line]
    groups = sum(item["groups"] for item in booked)
    said = {
        name: page.locator(f"#headline-{name}").inner_text()
        for name in ("interventions", "collapsed-groups", "uplift")
    }
    assert f"\n{INTERVENTIONS}\n" in said["interventions"]
    assert f"{outcomes['rescued']} rescued" in said["interventions"]
    assert f"{outcomes['still_collapsed']} still collapsed, {outcomes['skipped']} skipped" in said["interventions"]
    assert f"{sum(item['collapsed'] for item in booked)} of {groups} groups" in said["collapsed-groups"]
    recovered = {
        arm: [line["outcome"] in ("rescued", "hint_saturated") for line in written if line["arm"] == arm]
        for arm in ("hint", "control")
    }
    rates = {arm: sum(hits) / len(hits) for arm, hits in recovered.items()}
    assert f"{100 * (rates['hint'] - rates['control']):+.0f} points" in said["uplift"]
    policy = sum(item["policy_tokens"] for item in booked)
    assert f"{policy:,}" in page.locator("#policy-bill tfoot").inner_text()
    roles = [spent for item in booked for spent in item["mentor"]["roles"].values()]
    total = page.locator("#mentor-bill tfoot td").all_inner_texts()
    assert total[0] == f"{sum(spent['calls'] for spent in roles):,}"
    assert total[4] == f"{sum(spent['prompt_tokens'] for spent in roles):,}"
    assert total[6] == f"{sum(spent['completion_tokens'] for spent in roles):,}"
    table = page.locator("table.uplift").first
    assert f"{sum(recovered['hint'])} of {len(recovered['hint'])}" in table.locator("tbody tr").first.text_content()
    assert page.locator("figure.chart svg").count() >= 5


def test_the_page_follows_the_colours_of_the_reader_and_fits_a_telephone(chromium, run):
    grounds = {}
    for scheme in ("light", "dark"):
        with chromium.new_context(viewport={"width": 420, "height": 800}, color_scheme=scheme) as context:
            page = Watched(context, (run / "report.html").as_uri()).open()
            expect(page.locator("#detail h3")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 420
            colours = page.evaluate(
                "(({ color, backgroundColor }) => [color, backgroundColor])(getComputedStyle(document.body))"
            )
            grounds[scheme] = [sum(map(int, re.findall(r"\d+", colour))) for colour in colours]
    assert grounds["light"][0] < grounds["light"][1]
    assert grounds["dark"][0] > grounds["dark"][1]


def test_a_print_has_the_open_intervention_and_no_controls(watched):
    page = watched.open("#i=5")
    expect(page.locator("#detail h3")).to_be_visible()
    page.emulate_media(media="print")
    assert page.locator("#filters, .list, nav").evaluate_all("(all) => all.every((one) => !one.checkVisibility())")
    expect(page.locator("#detail h3")).to_be_visible()


def test_a_script_or_picture_that_got_in_would_be_refused_and_noticed(chromium, run):
    with chromium.new_context() as context:
        watched = Watched(context, (run / "report.html").as_uri())
        page = watched.open()
        refused = {f"policy {name}" for name in ("script-src-elem", "script-src-attr", "img-src", "style-src-attr")}
        with page.expect_console_message(lambda _: refused <= set(watched.complaints)):
            page.evaluate("""() => {
                const script = document.createElement("script");
                script.textContent = "window.hacked = 1";
                document.body.append(script);
                const markup = "<img src=x onerror='window.hacked = 2'><b style='color: red'>";
                document.body.insertAdjacentHTML("beforeend", markup);
            }""")
        expect(page.locator("b[style]")).to_be_attached()
        assert page.evaluate("window.hacked") is None


def test_an_empty_journal_opens(chromium, tmp_path):
    run = journals.write_run(tmp_path, 0)
    with chromium.new_context() as context:
        watched = Watched(context, write_report(run).as_uri())
        page = watched.open()
        expect(page.locator("#detail")).to_have_text("Nothing to show.")
        assert found(page) == "0 of 0 interventions"
        assert watched.complaints == []
