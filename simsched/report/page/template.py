"""Fills the templates of pages: a value is escaped as text unless it is markup already."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import ceil

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from simsched.outlets import html_text
from simsched.report.figures.output import Picture

#: What a page may load and run besides its own scripts: nothing but styles and images that it holds.
_ALLOWED = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
#: The least height of letters on a page, in pixels.
_LEAST_LETTERS_PX = 11.0
#: A table cell with a published value: `0.52 ±0.10 (0.76)`.
_WITH_PUBLISHED = re.compile(r"^(.*?)(?: \(([^()]*)\))?$")


def filled(template: str, **values: object) -> Markup:
    """Fill a template of this folder; the same values give the same markup."""
    return Markup(_environment().get_template(template).render(values))


def page_of(
    title: str, kind: str, main: Markup, *, contents: Sequence[tuple[str, str, str]] = (), script: str = ""
) -> str:
    """Return a page with a title, a line that describes its kind, and its main part.

    `contents` are the sections listed below the heading: anchor, name, and a sentence. `script` is the name of a
    script that this page needs.
    """
    scripts = [Markup(_source(name)) for name in ("page.js", script) if name]
    known = " ".join(f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in scripts)
    return str(
        filled(
            "page.html", title=title, kind=kind, main=main, contents=contents, scripts=scripts,
            allowed=Markup(f"{_ALLOWED}; script-src {known}"),
        )
    )  # fmt: skip


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_source), autoescape=True, finalize=_escaped, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"number_parts": number_parts, "title_without": _title_without, "scalable": _scalable}
    environment.globals["file"] = lambda name: Markup(_source(name))
    return environment


def _source(name: str) -> str:
    return files("simsched.report.page").joinpath(name).read_text(encoding="utf-8")


def _escaped(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(html_text(str(value)))


def number_parts(cell: str) -> tuple[str, str, str, str | None]:
    """Split a cell into value, sign of its interval, interval, and published value (None if there is none)."""
    found = _WITH_PUBLISHED.match(cell)
    own, published = found.groups() if found else (cell, None)
    mean, sign, rest = own.partition(" ±") if " ±" in own else own.partition(" [")
    return mean, sign.strip(), rest, published


def _title_without(picture: Picture, run_name: str) -> str:
    """Return a figure's title, which need not repeat the run's name."""
    title = picture.title.removeprefix(f"{run_name}: ")
    return title[:1].upper() + title[1:]


def _scalable(picture: Picture) -> Markup:
    """Return a drawing so large that its smallest letters can be read, and that may grow by half."""
    least = _LEAST_LETTERS_PX / picture.least_pt
    style = f"min-width: {ceil(least * picture.width_pt)}px; max-width: {max(1.5, least) * picture.width_pt:.0f}px"
    return Markup(picture.svg.replace("<svg ", f'<svg preserveAspectRatio="xMinYMin" style="{style}" ', 1))
