"""What a comparison says: its tables as one text, and the part of the README that they are published in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strategy_figure import figure
from strategy_hints import hint_table
from strategy_methods import MAIN, METHODS, Part
from strategy_rates import Rates
from strategy_tables import Result, Row, grid, markdown, rows, verdicts

MARKS = ("<!-- strategies: begin -->", "<!-- strategies: end -->")
IMAGE = Path("results", "strategies.png")


def tables(
    results: Sequence[Result],
    starts: Sequence[Mapping[str, Any]],
    hints: Sequence[dict[str, Any]],
    rates: Rates,
) -> str:
    """All tables, those of parts that did not run left out."""
    found = rows(results)
    rivals = [name for name, method in METHODS.items() if method.part is Part.RIVALS]

    def of(*parts: Part, main: bool) -> list[Row]:
        return [row for row in found if METHODS[row.method].part in parts and (row.world in MAIN) is main]

    main = of(Part.RIVALS, Part.VARIANTS, main=True)
    loop = of(Part.LOOP, main=True)
    erring = {(row.world, METHODS[row.method].rate_of) for row in loop}
    unerring = [row for row in main if (row.world, row.method) in erring]
    sections = (
        ("Rivals and constructions, the two main worlds", main, verdicts(main, rivals)),
        ("Rivals in other regimes", of(Part.RIVALS, main=False), verdicts(of(Part.RIVALS, main=False), rivals)),
        ("Poor tutors", of(Part.TUTORS, main=True), ""),
        ("The loop with a tutor that errs", [*unerring, *loop], ""),
    )
    pages = [f"### {title}\n\n{markdown(part)}\n{said}" for title, part, said in sections if part]
    if hints:
        pages.append(f"### Hints before any training\n\n{hint_table(hints)}")
    pages.append(f"### Students before training\n\n{start_table(starts)}")
    for world, chosen in rates.items():
        of_methods = ", ".join(f"{name} {rate:g}" for name, rate in chosen.items())
        pages.append(f"Learning rates in {world}: {of_methods}.\n")
    return "\n".join(pages)


def picture(results: Sequence[Result]) -> bytes:
    """Accuracy over tokens of the rivals alone, as a PNG."""
    shown = [result for result in results if METHODS[result["spec"]["method"]].part is Part.RIVALS] or results
    return figure(rows(shown), grid(shown))


def start_table(starts: Sequence[Mapping[str, Any]]) -> str:
    """What the students are like before training."""
    lines = [
        "| world | student | right without a hint (one concept) | right without (all) | right under the right hint "
        "| hint quoted | groups collapsed |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {s['world']} | {s['pretraining_seed']} | {s['unhinted']:.1e} | {s['plain']:.3f} | {s['hinted']:.3f} "
        f"| {s['quoted']:.2f} | {s['collapsed']:.3f} |"
        for s in starts
    ]
    lines += ["", *(f"* not what the world claims: {breach}" for start in starts for breach in start["breaches"])]
    return "\n".join(lines).rstrip() + "\n"


def publish(text: str, image: bytes, *, folder: Path) -> None:
    """Put the tables of a full comparison between the marks of the README in `folder`, and its figure beside it."""
    readme = folder / "README.md"
    written = readme.read_text(encoding="utf-8") if readme.exists() else "# Benchmarks\n\n" + "\n".join(MARKS) + "\n"
    before, _, rest = written.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    said = f"![accuracy over generated tokens]({IMAGE.as_posix()})\n\n{text}"
    (folder / IMAGE).write_bytes(image)
    readme.write_text(f"{before}{MARKS[0]}\n{said}{MARKS[1]}{after}", encoding="utf-8")
