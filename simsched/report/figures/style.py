"""The style and layout of every figure."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Figure  # for annotations elsewhere
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import Locator, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from simsched.outlets import cells_wide, shortened
from simsched.report.figures.lettering import families, label_text, words_text, write_figure
from simsched.report.units import Shown, round_step
from simsched.results import Row, Run

#: The default picture formats; `svg` is available too.
FORMATS = ("png", "pdf")

#: A figure and its data.
Drawn = tuple[Figure, pd.DataFrame]

#: How to draw a figure.
Plan = Callable[[], Drawn]

#: Okabe and Ito's colours, distinct under all common kinds of colour blindness. Indigo and grey replace their yellow,
#: too pale on white, and their black, which hides whiskers.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#808080")
#: Colours of areas, from dark to light in even steps, hence distinct in grey too, and the colour of the rest.
AREAS, REST = ("#2A1A7A", "#8A3500", "#0066B0", "#009E73", "#E08FBF", "#8FCBF0", "#F2E06A"), "#777777"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">")
#: These policies look the same in every report.
_USUAL = MappingProxyType({"pollux": 0, "tiresias": 1, "optimus": 2, "srtf": 3, "fifo": 7})

_SETTINGS = MappingProxyType(
    {
        "axes.axisbelow": True,
        "axes.grid": True,
        "axes.labelsize": 9,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 9.5,
        "font.size": 9,
        "grid.color": "#DDDDDD",
        "grid.linewidth": 0.6,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "lines.linewidth": 1.7,
        "pdf.fonttype": 42,
        "savefig.dpi": 150,
        "svg.hashsalt": "simsched",
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
    }
)
NO_DATES: dict[str, dict[str, Any]] = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
#: Matplotlib's prefix for unnamed artists.
_UNNAMED = re.compile(r"_(nolegend_|(child|container)\d+)")
#: Placeholder for a non-breaking space.
_BOUND = "\u00a0"
#: Font sizes of a title and of one too long for its figure, in points, and letters per inch.
_TITLE_SIZE, _LEAST_TITLE = 11, 8
_TITLE_LETTERS_PER_INCH, _CAPTION_LETTERS_PER_INCH = 10.2, 15.5
_CAPTION_SIZE = 7.5
#: Inches: left of and outside title and caption, a line of title, caption and legend, a legend's handle and letter.
_LEFT, _MARGIN = 0.1, 0.08
_TITLE_HEIGHT, _CAPTION_LINE, _LEGEND_LINE = 0.36, 0.145, 0.205
_LEGEND_HANDLE, _LEGEND_LETTER = 0.58, 0.06
BAND_ALPHA = 0.18
#: With more lines than this, the ranges over seeds hide more than they show.
MOST_SPANS = 4
#: An axis of time has at most so many ticks.
_MOST_TIMES = 9
#: How many whiskers a curve has.
_WHISKERS = 7


@dataclass(frozen=True)
class Look:
    """The colour, dashes and marker of one label."""

    colour: str
    dash: Any
    marker: str


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Return the style of each label; the usual policies keep theirs, and the first eight have distinct colours."""
    names = list(dict.fromkeys(labels))
    chosen: dict[str, int] = {}
    for policy, colour in _USUAL.items():
        name = next((n for n in names if policy in n.lower() and n not in chosen), None)
        if name is not None:
            chosen[name] = colour
    free = [colour for colour in range(len(PALETTE)) if colour not in chosen.values()]
    rest = [name for name in names if name not in chosen]
    for index, name in enumerate(rest):
        chosen[name] = free[index] if index < len(free) else (index - len(free)) % len(PALETTE)
    return {
        name: Look(
            PALETTE[chosen[name]],
            _DASHES[(index + index // len(PALETTE)) % len(_DASHES)],  # a repeated colour gets other dashes
            _MARKERS[index % len(_MARKERS)],
        )
        for index, name in enumerate(names)
    }


def row_looks(run: Run, rows: Iterable[Row]) -> dict[str, Look]:
    """Return the style of each row by its name: a policy has the same colour in all figures of a run.

    Rows of one policy differ by dashes and markers; if there is only one policy, by colour.
    """
    policies = {row.shown_name: row.shown_policy for row in rows}
    if len(set(policies.values())) == 1 < len(policies):
        return looks(policies)
    of_policy, found = looks(run.shown_policies), dict[str, Look]()
    several = len(set(policies.values())) < len(policies)
    for name, policy in policies.items():
        index = sum(policies[other] == policy for other in found)
        dashes = Look(of_policy[policy].colour, _DASHES[index % len(_DASHES)], _MARKERS[index % len(_MARKERS)])
        found[name] = dashes if several else of_policy[policy]
    return found


def ramp_looks(names: Sequence[str]) -> dict[str, Look]:
    """Return styles for rows that differ only by a number, in its order: one ramp of colours from light to dark."""
    colours = mpl.colormaps["viridis_r"]
    steps = [0.15 + 0.85 * place / max(1, len(names) - 1) for place in range(len(names))]
    return {name: Look(to_hex(colours(step)), "-", _MARKERS[0]) for name, step in zip(names, steps, strict=True)}


def area_colours(names: Sequence[str]) -> dict[str, str]:
    """Return the colour of each area, from dark to light; `others` and areas beyond the palette are grey."""
    known = [name for name in names if name != "others"]
    last = len(AREAS) - 1
    step = last / max(len(known) - 1, 1) if len(known) <= last else 1
    found = {name: AREAS[round(place * step)] for place, name in enumerate(known[: last + 1])}
    return {name: found.get(name, REST) for name in names}


def plain_log(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with readable round numbers."""
    axes.set(yscale="log")
    axes.yaxis.set_major_locator(Ticks(round_ticks))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_minor_locator(NullLocator())


class Ticks(Locator):
    """Places ticks by a function of the ends of the axis."""

    def __init__(self, places: Callable[[float, float], list[float]]) -> None:
        """Take the function."""
        self._places = places

    def __call__(self) -> list[float]:
        """Return the ticks of the axis as it is shown."""
        axis: Any = self.axis
        return self.tick_values(*sorted(axis.get_view_interval()))

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """Return the ticks between two numbers."""
        return self._places(vmin, vmax)


def time_ticks(unit: str, low: float, high: float) -> list[float]:
    """Return round times between two: whole days, h, min or s, or parts of one that divide it evenly."""
    step = round_step(unit, high - low, _MOST_TIMES) or 1.0
    return [step * place for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def time_axis(axes: Axes, unit: Shown, since: str = "the start of the workload", last_s: float | None = None) -> None:
    """Make the horizontal axis one of time in a unit from 0 (to `last_s`), with ticks at round times."""
    axes.set_xlim(0, None if last_s is None else last_s * unit.factor)
    axes.set_xlabel(unit.title(f"time since {since}"))
    axes.xaxis.set_major_locator(Ticks(partial(time_ticks, unit.unit)))


def round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two, few and even on a logarithmic axis."""
    for steps in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0), tuple(np.arange(100, 1000, 5) / 100)):
        found = [step * 10.0**power for power in range(-9, 13) for step in steps if low <= step * 10.0**power <= high]
        if len(found) > 2:
            return found[:: -(-len(found) // 8)]
    return [1.0]


@contextmanager
def styled() -> Iterator[None]:
    """Apply the project's settings while a block, or the function that this decorates, draws."""
    settings: Any = {**_SETTINGS, "font.family": list(families())}
    with mpl.rc_context(settings):
        yield


class ShownFigure(Figure):
    """A figure that a notebook shows without a window system."""

    def _repr_png_(self) -> bytes:
        """Return the picture as PNG, for notebooks."""
        held = BytesIO()
        with styled():
            write_figure(self, held, format="png", metadata=NO_DATES["png"])
        return held.getvalue()


def new_figure(width: float, height: float, title: str, caption: str) -> Figure:
    """Make an empty figure with a title above and a small caption below its panels.

    Sizes in inches; `height` is that of the panels; title, legend and caption add to it.
    """
    letters = int(width * _CAPTION_LETTERS_PER_INCH)
    lines = caption_lines(words_text(caption, letters // 2), letters)
    size = min(_TITLE_SIZE, max(_LEAST_TITLE, _TITLE_SIZE * width * _TITLE_LETTERS_PER_INCH / max(len(title), 1)))
    title = shortened(words_text(title, letters), int(width * _TITLE_LETTERS_PER_INCH * _TITLE_SIZE / size))
    below = _MARGIN + _CAPTION_LINE * len(lines)
    figure = ShownFigure(figsize=(width, height + _TITLE_HEIGHT + below), layout="constrained")
    FigureCanvasAgg(figure)
    figure.text(_LEFT, -_MARGIN, title, transform=corner(figure, 1), va="top", weight="bold", size=size)
    text = "\n".join(lines)
    figure.text(_LEFT, _MARGIN, text, transform=corner(figure, 0), va="bottom", size=_CAPTION_SIZE, color="#444444")
    _leave_room(figure, _TITLE_HEIGHT, below)
    return figure


def add_to_caption(figure: Figure, sentences: Sequence[str]) -> None:
    """Add sentences below the caption of a figure, each on separate lines, and make room for them."""
    width, height = figure.get_size_inches()
    engine: Any = figure.get_layout_engine()
    _, bottom, _, inside = engine.get()["rect"]
    letters = int(width * _CAPTION_LETTERS_PER_INCH)
    added = [line for text in sentences for line in caption_lines(words_text(text, letters // 2), letters)]
    room = _CAPTION_LINE * len(added)
    figure.texts[1].set_text("\n".join([*filter(None, [figure.texts[1].get_text()]), *added]))
    figure.set_size_inches(width, height + room)
    _leave_room(figure, height * (1 - bottom - inside), height * bottom + room)


def caption_lines(caption: str, letters: int) -> list[str]:
    """Break a caption into lines of similar length, never between a number and its noun."""
    bound = re.sub(r"(?<=\d) (?=[A-Za-z%])", _BOUND, caption)
    fewest = len(textwrap.wrap(bound, letters))
    even = next(size for size in range(len(bound) // max(fewest, 1), letters + 1)
                if size > 0 and len(textwrap.wrap(bound, size, break_long_words=False)) <= fewest)  # fmt: skip
    return [line.replace(_BOUND, " ") for line in textwrap.wrap(bound, even, break_long_words=False)]


def legend_above(figure: Figure, axes: Axes, named: Iterable[Any] | None = None) -> None:
    """Place the legend of `axes`, or of the `named` entries, between title and panels, in as many lines as it needs."""
    found = _named(axes) if named is None else named
    handles = [one for one in found if one.get_label() and not _UNNAMED.fullmatch(str(one.get_label()))]
    labels = [label_text(str(handle.get_label())) for handle in handles]
    if not handles:
        return
    width, height = figure.get_size_inches()
    columns = legend_columns(labels, width - 0.2, _LEGEND_HANDLE, _LEGEND_LETTER)
    needed = _LEGEND_LINE * -(-len(labels) // columns) + 0.06
    below = _MARGIN + _CAPTION_LINE * (figure.texts[1].get_text().count("\n") + 1)
    figure.set_size_inches(width, height + needed)
    _leave_room(figure, _TITLE_HEIGHT + needed, below)
    place_legend(figure, handles, labels, (_LEFT, -_TITLE_HEIGHT), ncols=columns)


def legend_columns(labels: Sequence[str], width: float, handle: float, letter: float) -> int:
    """Return how many labels fit side by side, given the inches of a handle and of a letter."""
    return max(1, min(len(labels), int(width / (handle + letter * max(map(cells_wide, labels))))))


def place_legend(figure: Figure, handles: Any, labels: Sequence[str], place: tuple[float, float], **how: Any) -> None:
    """Draw a legend at a place in inches from the upper left corner."""
    at: Any = {"loc": "upper left", "bbox_to_anchor": place, "bbox_transform": corner(figure, 1)}
    figure.legend(handles, labels, **at, borderpad=0, borderaxespad=0, **how)


def span(curve: Line2D, low: Any, high: Any, look: Look, place: int = 0, curves: int = 1) -> None:
    """Show the range over seeds of a curve: shaded, or by whiskers if there are several `curves`.

    Shades of several curves would merge; whiskers are side by side, by the `place` of each curve, with the curve's
    marker, which identifies them in grey.
    """
    axes: Any = curve.axes
    x, low, high = (np.asarray(values, dtype=float) for values in (curve.get_xdata(), low, high))
    if curves == 1:
        axes.fill_between(x, low, high, color=look.colour, alpha=BAND_ALPHA, linewidth=0)
        return
    step = max(len(x) // _WHISKERS, 1)
    at = slice(step * (2 * place + 1) // (2 * curves), None, step)
    curve.set(marker=look.marker, markersize=3.5, markevery=at)
    style: Any = {"fmt": "none", "ecolor": look.colour, "elinewidth": 0.9, "capsize": 2, "capthick": 0.9}
    axes.errorbar(x[at], low[at], yerr=[np.zeros(len(x[at])), np.maximum(high[at] - low[at], 0)], **style)


def spread_words(data: pd.DataFrame) -> str:
    """Describe in a caption the means and whiskers of data with the columns of a `Spread`."""
    seeds = sorted({int(n) for n in data["seeds"]})
    if seeds == [1]:
        return "One seed, hence no interval."
    count = f"{seeds[0]} seeds" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds" if seeds else "no seeds"
    ranges = "; if that is wider than the mean, from the least to the most" if data["is_range"].any() else ""
    return f"Mean over {count}; whiskers: 95 % interval (Student's t){ranges}."


def span_words(curves: int) -> str:
    """Describe in a caption what `span` shows."""
    return f"; {'the band spans' if curves == 1 else 'whiskers span'} the lowest and the highest seed"


def _named(axes: Axes) -> Iterator[Any]:
    """Return the entries of a legend, including names with a leading underscore, which matplotlib leaves out."""
    yield from (one for one in axes.get_children() if isinstance(one, (Line2D, Patch, Collection)))
    yield from axes.containers


def corner(figure: Figure, top: int) -> Transform:
    """Return coordinates in inches from the lower (0) or upper (1) left corner of a figure, whatever its size."""
    whole: Any = figure.transFigure  # any transform works, the stubs require an affine one
    return figure.dpi_scale_trans + ScaledTranslation(0, top, whole)


def _leave_room(figure: Figure, above: float, below: float) -> None:
    height = figure.get_size_inches()[1]
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, below / height, 1, 1 - (above + below) / height))


@dataclass(frozen=True)
class Words:
    """Title and caption of a figure, and the inches that they took above and below."""

    title: str
    caption: str
    above: float
    below: float


def take_words(figure: Figure) -> Words:
    """Remove title and caption from a figure, for pages that set them as text."""
    title, caption = figure.texts[:2]
    lines = caption.get_text().split("\n")
    title.set_visible(False)
    caption.set_visible(False)
    return Words(title.get_text(), " ".join(lines), _TITLE_HEIGHT - 0.04, _MARGIN + _CAPTION_LINE * len(lines))
