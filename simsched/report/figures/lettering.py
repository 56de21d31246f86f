"""The texts of a figure: names verbatim, in installed fonts, of bounded length."""

from __future__ import annotations

import io
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from simsched.outlets import formula_text, one_line, shortened, visible

_FIRST = "DejaVu Sans"
#: Fonts with glyphs that the first one lacks, in order of preference; only installed ones are used.
_OTHERS = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei",
    "Droid Sans Fallback", "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Noto Sans CJK JP",
    "Noto Sans CJK KR", "Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans", "Arial Unicode MS",
)  # fmt: skip
#: The most characters per line, lines per text, and accents per letter for which a figure has room.
_LONGEST, _MOST_LINES, _MOST_ACCENTS = 48, 12, 3
#: The lengths to try if names leave no room for the panels.
_LENGTHS = (_LONGEST, 24, 12, 6)
_NO_ROOM = "constrained_layout not applied"
_LETTERS_PER_INCH = 20


@cache
def families() -> tuple[str, ...]:
    """Name the fonts of figures: the default one, and installed ones for other scripts."""
    installed = {font.name for font in fontManager.ttflist}
    return (_FIRST, *(name for name in _OTHERS if name in installed))


@cache
def _drawable(sign: str) -> bool:
    """Return whether one of the fonts has a character, in regular and bold."""
    return any(
        all(
            get_font(findfont(FontProperties(family=[name], weight=weight))).get_char_index(ord(sign))
            for weight in ("normal", "bold")
        )
        for name in families()
    )


def with_glyphs(text: str) -> str:
    r"""Show characters that no installed font has as `\u4e2d`, to keep names distinct."""
    return "".join(sign if sign.isascii() or _drawable(sign) else _code(sign) for sign in text)


def _code(sign: str) -> str:
    return f"\\u{ord(sign):04x}"


def label_text(text: str) -> str:
    """Shorten a name to one line that fits a legend or an axis."""
    return shortened(_with_few_accents(one_line(text)), _LONGEST)


def words_text(text: str, letters: int) -> str:
    """Join a title or a caption into one line with words of at most `letters`."""
    return " ".join(shortened(word, letters) for word in _with_few_accents(one_line(text)).split(" "))


def _with_few_accents(text: str) -> str:
    kept, run = [], 0
    for sign in text:
        run = run + 1 if unicodedata.combining(sign) else 0
        if run <= _MOST_ACCENTS:
            kept.append(sign)
    return "".join(kept)


def write_figure(figure: Figure, target: Any, **how: Any) -> None:
    """Write a figure as `Figure.savefig` does, shortening names until there is room for the panels."""
    _write(figure, lambda: figure.savefig(target, **how), glyphs=True)


def write_texts(figure: Figure, target: io.BytesIO) -> None:
    """Write a figure as SVG whose texts stay texts: the viewer finds the fonts."""
    canvas: Any = FigureCanvasSVG(figure)

    def save() -> None:  # `Figure.savefig` would draw twice, once for the layout alone
        target.seek(0)
        target.truncate()
        canvas.print_svg(target, metadata={"Date": None})

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        _write(figure, save, glyphs=False)


def _write(figure: Figure, save: Callable[[], None], *, glyphs: bool) -> None:
    for longest in _LENGTHS:
        _settle(figure, longest, glyphs)
        with warnings.catch_warnings():
            if longest != _LENGTHS[-1]:
                warnings.filterwarnings("error", _NO_ROOM, UserWarning)
            try:
                save()
            except UserWarning as warning:
                if not str(warning).startswith(_NO_ROOM):
                    raise
            else:
                return


def _settle(figure: Figure, longest: int, glyphs: bool) -> None:
    """Prepare all texts of a figure: none is parsed as a formula, and all have glyphs and room.

    The numbers on axes stay as matplotlib formats them.
    """
    numbers = {id(label) for axis in _axes_of(figure) for label in _labels(axis)}
    whole = int(figure.get_size_inches()[0] * _LETTERS_PER_INCH)
    for text in figure.findobj(_is_text):
        if isinstance(text, Text) and id(text) not in numbers:
            text.set_text(_settled(text.get_text(), whole if text in figure.texts else longest, glyphs))
            text.set_parse_math(False)
    for axis in _axes_of(figure):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, FuncFormatter):  # names given for positions
            given = formatter.func
            formatter.func = _Names(given.own if isinstance(given, _Names) else given, longest, glyphs)


class _Names:
    """Formats the names at the positions of an axis."""

    def __init__(self, own: Callable[..., str], longest: int, glyphs: bool) -> None:
        self.own: Callable[..., str] = own
        self._longest = longest
        self._glyphs = glyphs

    def __call__(self, place: float, number: int | None = None) -> str:
        return formula_text(_settled(self.own(place, number), self._longest, self._glyphs))


def _settled(text: str, longest: int, glyphs: bool) -> str:
    lines = _with_few_accents(visible(text)).split("\n")
    lines = lines if len(lines) <= _MOST_LINES else [one_line(text)]
    return "\n".join(shortened(with_glyphs(line) if glyphs else line, longest) for line in lines)


def _is_text(artist: Artist) -> bool:
    return isinstance(artist, Text)


def _axes_of(figure: Figure) -> Iterator[Axis]:
    for axes in figure.axes:
        yield from (axes.xaxis, axes.yaxis)


def _labels(axis: Axis) -> Iterator[Text]:
    yield axis.get_offset_text()
    for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
        yield from (tick.label1, tick.label2)
