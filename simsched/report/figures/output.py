"""Writes figures: to files, for a paper, and as elements of a page."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from simsched.files import write_text, written_aside
from simsched.outlets import csv_cell, file_name, latex_text
from simsched.report.figures.lettering import write_figure, write_texts
from simsched.report.figures.style import FORMATS, NO_DATES, Figure, legend_columns, place_legend, styled, take_words

#: The widths in inches at most conferences.
WIDTHS: Mapping[str, float] = MappingProxyType({"one-column": 3.33, "two-columns": 7.0})

#: Letters of 9 points on a page have 7.5 points in a paper, and at least 6.
_SMALLER, _LEAST_SIZE = 7.5 / 9, 6.0
#: A narrow figure is somewhat taller than in proportion.
_TALLER = 1.2
_LEGEND_SIZE, _LEGEND_LINE, _LEGEND_HANDLE, _LEGEND_LETTER, _GAP = 7.0, 0.145, 0.42, 0.052, 0.04
_MOST_TICKS = 6
#: Inches of a line of a panel's title, beside a panel, and of a letter of one point.
_TITLE_LINE, _BESIDE, _LETTER = 0.12, 0.45, 0.55 / 72
_FEWEST_LETTERS = 8
#: From this many panels side by side, panels in a paper are so narrow that they need this height in inches.
_MANY, _LEAST_HEIGHT = 3, 1.5


def for_paper(figure: Figure, style: str, name: str) -> str:
    """Format a figure for a paper; return the LaTeX that includes it, with its title and caption."""
    width, words = WIDTHS[style], take_words(figure)
    before, height = figure.get_size_inches()
    engine: Any = figure.get_layout_engine()
    scale = width / before
    panels = height * engine.get()["rect"][3] * min(scale * _TALLER, 1.0)
    for text in figure.findobj(Text):
        text.set_fontsize(max(float(text.get_fontsize()) * _SMALLER, _LEAST_SIZE))
    grids = [place.get_gridspec() for axes in figure.axes if (place := axes.get_subplotspec()) is not None]
    if scale < 1 and any(grid.ncols >= _MANY for grid in grids):
        panels = max(panels, *(_LEAST_HEIGHT * grid.nrows for grid in grids))
    panels += _TITLE_LINE * (max((_break_title(axes, width) for axes in figure.axes), default=1) - 1)
    for line in figure.findobj(Line2D):
        line.set_linewidth(line.get_linewidth() * _SMALLER)
    if scale < 1:
        _fewer_ticks(figure)
    legend = _legend(figure, width)
    figure.set_size_inches(width, panels + legend)
    engine.set(rect=(0, 0, 1, panels / (panels + legend)))
    environment = "figure*" if style == "two-columns" else "figure"
    size = r"\textwidth" if style == "two-columns" else r"\columnwidth"
    return "\n".join(
        (
            rf"\begin{{{environment}}}",
            rf"  \includegraphics[width={size}]{{{name}}}",
            rf"  \caption{{{latex_text(f'{words.title}. {words.caption}')}}}",
            rf"  \label{{fig:{name}}}",
            rf"\end{{{environment}}}",
            "",
        )
    )


def _break_title(axes: Axes, width: float) -> int:
    """Break the title of a panel that is longer than the panel is wide; return its lines."""
    place, whole = axes.get_subplotspec(), axes.get_title(loc="left")
    columns = place.get_gridspec().ncols if place is not None else 1
    lines = 1
    for title in [one for one in axes.get_children() if isinstance(one, Text) and whole and one.get_text() == whole]:
        letters = max(int((width / columns - _BESIDE) / (_LETTER * float(title.get_fontsize()))), _FEWEST_LETTERS)
        broken = [line for part in whole.split("\n") for line in textwrap.wrap(part, letters) or [""]]
        title.set_text("\n".join(broken))
        lines = len(broken)
    return lines


def _fewer_ticks(figure: Figure) -> None:
    """Label every second tick if the names of positions would overlap, and fewer numbers."""
    for axes in figure.axes:
        height = axes.yaxis.get_major_locator()
        if isinstance(height, MaxNLocator):
            height.set_params(nbins=5)
        places, names = axes.get_xticks(), [label.get_text() for label in axes.get_xticklabels()]
        if axes.get_xscale() == "log" and len(places) > _MOST_TICKS and any(names):
            axes.set_xticks(places[::2], names[::2])


def _legend(figure: Figure, width: float) -> float:
    """Lay out the legend above the panels again, in as many lines as it needs; return their height in inches."""
    if not figure.legends:
        return 0.0
    old: Any = figure.legends[0]
    handles, labels = old.legend_handles, [text.get_text() for text in old.get_texts()]
    old.remove()
    columns = legend_columns(labels, width - 0.1, _LEGEND_HANDLE, _LEGEND_LETTER)
    how = {"ncols": columns, "fontsize": _LEGEND_SIZE, "columnspacing": 1.0, "handlelength": 2.0}
    place_legend(figure, handles, labels, (_GAP, -_GAP), **how)
    return _LEGEND_LINE * -(-len(labels) // columns) + 2 * _GAP


@styled()
def save(
    figure: Figure, data: pd.DataFrame, folder: Path, name: str, formats: Sequence[str] = FORMATS, style: str = "page"
) -> list[Path]:
    """Write a figure and, as CSV, the data behind it; the same figure gives the same bytes.

    Each file is written under a temporary name and renamed when complete. Returns the paths, pictures first. A `style`
    for papers, see `WIDTHS`, adds the LaTeX that sets the figure.
    """
    folder, name = Path(folder), file_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    if style != "page":
        write_text(folder / f"{name}.tex", for_paper(figure, style, name))
        paths.append(folder / f"{name}.tex")
    for kind in formats:
        paths.append(folder / f"{name}.{kind}")
        with written_aside(paths[-1]) as aside:
            write_figure(figure, aside, format=kind, metadata=NO_DATES.get(kind))
    paths.append(folder / f"{name}.csv")
    with written_aside(paths[-1]) as aside:
        data.map(csv_cell).rename(columns=csv_cell).to_csv(aside, index=False, lineterminator="\n")
    return paths


#: Verdana is as wide as the layout font of the figures; otherwise any sans-serif font works.
_FONT, _FONTS = "'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif"
_POINTS_PER_INCH = 72
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_DROPPED = ("metadata", "style")


@dataclass(frozen=True)
class Picture:
    """A figure for a page: its title and caption, which the page sets, and its drawing.

    It is `width_pt` points wide, and its smallest letters have `least_pt` points.
    """

    title: str
    caption: str
    svg: str
    width_pt: int
    least_pt: float


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
    sizes = [float(one.get_fontsize()) for one in figure.findobj(Text) if one.get_visible() and one.get_text()]
    return Picture(words.title, words.caption, svg, round(width), min(sizes, default=9.0))


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
