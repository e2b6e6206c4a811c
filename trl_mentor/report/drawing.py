"""Pictures as SVG text that stands inside an HTML page: drawn by matplotlib, then reduced to plain shapes and texts.

What is left has no ids, styles, links or references, so that several pictures share a page under a strict policy, and
takes the colour of text and background from the page.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from trl_mentor.errors import ConfigError
from trl_mentor.quoting import clean_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 8.0
"""Inches, of 72 units of the `viewBox` each."""

INK, PAGE = "#010203", "#fdfcfb"
"""Stand for the page's colours of text and background."""

GREEN, ORANGE, VERMILION, SKY, BLUE, PURPLE, GREY = (
    "#009e73",
    "#e69f00",
    "#d55e00",
    "#56b4e9",
    "#0072b2",
    "#cc79a7",
    "#8a8f98",
)
"""Okabe and Ito's colours, which the colour-blind can tell apart, and a grey; they show on white and on black."""

CSS = """.chart svg{display:block;width:100%;max-width:680px;height:auto;overflow:visible}
.chart text{font-family:inherit;white-space:pre}
.chart [stroke=Canvas]{stroke:var(--card,Canvas)}
"""
"""Rules for the page that the pictures stand in."""

_SETTINGS: dict[str, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "figure.constrained_layout.h_pad": 0.08,
    "font.size": 11,
    "legend.frameon": False,
    "legend.handlelength": 1.0,
    "legend.handleheight": 1.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "trl-mentor",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.color": INK,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))

_NUMBER = re.compile(r"-?\d+\.\d+")
_REPEATED = re.compile(r"(?<!\S)(L \S+ \S+)(?: \1(?!\S))+")
_FONT_SIZE = re.compile(r"([\d.]+)px")
_NO_CHARACTERS = re.compile("[\ufffe\uffff\U0001fffe\U0001ffff]")
_KEPT = {
    "fill",
    "fill-opacity",
    "opacity",
    "stroke",
    "stroke-dasharray",
    "stroke-dashoffset",
    "stroke-linecap",
    "stroke-linejoin",
    "stroke-opacity",
    "stroke-width",
    "text-anchor",
}
_COLOURS = {INK: "currentColor", PAGE: "Canvas"}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture before it is drawn."""

    title: str
    description: str
    height: float
    """In inches."""
    paint: Callable[[Figure], None]


def svg(drawing: Drawing) -> str:
    """The picture as one `<svg>` element. Raises `ConfigError` if matplotlib is not installed."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "the charts of a report are drawn by matplotlib, which is not installed; "
            "pip install 'trl-mentor[report]' brings it"
        ) from error
    written = io.BytesIO()
    with style.context(["default", _SETTINGS]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # the browser has it, or shows a box
        figure = Figure(figsize=(WIDTH, drawing.height), layout="constrained")
        drawing.paint(figure)
        figure.savefig(written, format="svg", metadata=_NO_METADATA, transparent=True)
    return _reduced(ElementTree.fromstring(written.getvalue()), drawing)


def label(text: str, limit: int = 36) -> str:
    """A foreign text as one short line, without what cannot stand in XML or turns the direction of the line."""
    line = " ".join(_NO_CHARACTERS.sub("\ufffd", clean_text(text[: 20 * limit])).split())
    seen = "".join(char for char in line if unicodedata.category(char) not in ("Cc", "Cf"))
    return seen if len(seen) <= limit else seen[: limit - 1] + "\u2026"


def _reduced(drawn: Element, drawing: Drawing) -> str:
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": drawn.attrib["viewBox"], "role": "img"})
    root.attrib |= {"stroke-linejoin": "round", "font-size": "11"}
    for name, text in (("title", drawing.title), ("desc", drawing.description)):
        ElementTree.SubElement(root, name).text = text
    shapes = {shape.attrib["id"]: shape for shape in drawn.iter() if _tag(shape) == "path" and "id" in shape.attrib}
    root.extend(_parts(drawn, shapes))
    return ElementTree.tostring(root, encoding="unicode")


def _parts(element: Element, shapes: Mapping[str, Element]) -> Iterator[Element]:
    """The visible shapes and texts of a tree in their order; what is used again is copied to its places."""
    for child in element:
        match _tag(child):
            case "g":
                yield from _parts(child, shapes)
            case "path":
                if (look := _look(child)).get("fill") != "none" or "stroke" in look:
                    yield _shape(child.attrib["d"], look)
            case "use":
                shape = shapes[next(value for name, value in child.attrib.items() if name.endswith("href"))[1:]]
                place = {"transform": _short(f"translate({child.attrib['x']} {child.attrib['y']})")}
                yield _shape(shape.attrib["d"], _look(shape) | _look(child) | place)
            case "text":
                text = Element("text", _look(child) | _place(child))
                text.text = child.text
                yield text


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _shape(path: str, look: Mapping[str, str]) -> Element:
    return Element("path", {"d": _REPEATED.sub(r"\1", " ".join(_short(path).split())), **look})


def _short(text: str) -> str:
    return _NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), text)


def _place(text: Element) -> dict[str, str]:
    return {name: _short(text.attrib[name]) for name in ("x", "y", "transform") if name in text.attrib}


def _look(element: Element) -> dict[str, str]:
    """What the style of an element says, as attributes."""
    found: dict[str, str] = {}
    for rule in element.attrib.get("style", "").split(";"):
        name, _, value = (part.strip() for part in rule.partition(":"))
        if name in _KEPT:
            found[name] = _COLOURS.get(value, value)
        elif name in ("font", "font-size") and (size := _FONT_SIZE.search(value)):
            found["font-size"] = size[1]
        if name == "font-weight" or (name == "font" and "bold" in value.split()):
            found["font-weight"] = "bold" if "bold" in value or value == "700" else "normal"
    if _tag(element) == "text":
        found.setdefault("fill", "currentColor")
    return found
