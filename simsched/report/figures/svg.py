"""Turns figures into SVG elements for an HTML page."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.figure import Figure

from simsched.report.figures.lettering import write_texts
from simsched.report.figures.style import styled, take_words

#: Verdana is as wide as the layout font of the figures; otherwise any sans-serif font works.
_FONT, _FONTS = "'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif"
_POINTS_PER_INCH = 72
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_DROPPED = ("metadata", "style")


@dataclass(frozen=True)
class Picture:
    """A figure for a page: its title and caption, which the page sets, and its drawing of `width_pt` points."""

    title: str
    caption: str
    svg: str
    width_pt: int


def inline_svg(figure: Figure, prefix: str) -> Picture:
    """Write a figure as an `<svg>` element without title and caption; the same figure gives the same text.

    Text stays text, and nothing refers to anything outside. Ids begin with `prefix`: several drawings fit on one page.
    """
    words = take_words(figure)
    written = io.BytesIO()
    with styled(), mpl.rc_context({"svg.fonttype": "none"}):
        write_texts(figure, written)
    root = ElementTree.fromstring(written.getvalue())
    _plain_names(root)
    _own_ids(root, prefix)
    _shorten(root)
    width, height = (float(side) * _POINTS_PER_INCH for side in figure.get_size_inches())
    top, below = words.above * _POINTS_PER_INCH, words.below * _POINTS_PER_INCH
    root.attrib = {
        "viewBox": f"0 {top:.0f} {width:.0f} {height - top - below:.0f}",
        "role": "img",
        "aria-label": f"{words.title}. {words.caption}",
    }
    svg = ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)
    return Picture(words.title, words.caption, svg, round(width))


def _plain_names(root: ElementTree.Element) -> None:
    """Strip namespaces from all names for HTML; drop metadata and styles of the whole page."""
    for parent in root.iter():
        for child in list(parent):
            if _local(child.tag) in _DROPPED:
                parent.remove(child)
        parent.tag = _local(parent.tag)
        parent.attrib = {_local(name): value for name, value in parent.attrib.items()}


def _local(name: str) -> str:
    return name.rsplit("}", 1)[-1]


def _own_ids(root: ElementTree.Element, prefix: str) -> None:
    """Keep the ids that are referenced, and make them unique across drawings."""
    used: set[str] = set()
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "href":
                used.add(value.removeprefix("#"))
                element.set(name, f"#{prefix}{value.removeprefix('#')}")
            elif "url(#" in value:
                used.update(_REFERENCE.findall(value))
                element.set(name, _REFERENCE.sub(rf"url(#{prefix}\1)", value))
    for element in root.iter():
        own = element.attrib.pop("id", None)
        if own in used:
            element.set("id", prefix + own)


def _shorten(root: ElementTree.Element) -> None:
    """Round positions to hundredths of a point, which is invisible, and name fonts that every system has."""
    for element in root.iter():
        for name, value in element.attrib.items():
            if name in {"d", "x", "y"}:
                element.set(name, " ".join(_LONG_NUMBER.sub(_two_decimals, value).split()))
            elif name == "style":
                element.set(name, value.replace(_FONT, _FONTS))
        if element.tag not in {"text", "tspan"}:
            element.text = None
        element.tail = None


def _two_decimals(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
