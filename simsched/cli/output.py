"""What the commands print: tables, JSON and the places of files."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.errors import input_error
from simsched.files import write_text
from simsched.outlets import json_text, one_line, plain_stream, shortened, visible

if TYPE_CHECKING:
    from simsched.report import TextTable

#: The default width, and the longest cell; longer names lose their middle.
_PAGE, _LONGEST = 100, 80

json_option = click.option("--json", "as_json", is_flag=True, help="Print machine-readable JSON.")


def write_file(path: Path, text: str) -> None:
    """Write a file that the user named; raises `InputError` if it cannot be written."""
    try:
        write_text(path, text)
    except OSError as error:
        raise input_error(path, f"cannot be written: {error.strerror}", "name another place") from error


def say_figures(paths: Iterable[Path], word: str = "Figure") -> None:
    """Print the paths of figures in formats for the screen."""
    for path in paths:
        if path.suffix == ".png":
            click.echo(f"{word}: {path}")


def print_json(content: object) -> None:
    """Print JSON with keys in order; non-finite numbers become null."""
    click.echo(json_text(_plain(content), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, Mapping):
        return {_key(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return _plain(value.item()) if hasattr(value, "item") else str(value)


def _key(key: Any) -> Any:
    plain = _plain(key)
    return plain if isinstance(plain, str | bool | int | float | None) else str(key)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, folded: bool = False) -> str:
    """Align a table, the first `left` columns to the left; see `TextTable.text`."""
    from simsched.report import TextTable

    return TextTable("", tuple(headers), tuple(map(tuple, rows)), (), left).text(folded=folded)


def print_table(shown: TextTable) -> None:
    """Print a table and its notes in blocks that fit: framed by rich on a terminal, aligned text elsewhere."""
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_PAGE, 24)).columns if on_terminal else _PAGE
    if shown.title:
        click.echo(one_line(shown.title))
    rows = tuple(tuple(shortened(one_line(cell), _LONGEST) for cell in row) for row in shown.rows)
    for number, block in enumerate(replace(shown, rows=rows).blocks(width)):
        if number:
            click.echo()
        if on_terminal:
            _print_framed(block)
        else:
            click.echo(block.text())
    for note in shown.notes:
        click.echo(one_line(note))


def _print_framed(block: TextTable) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    framed = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for i, header in enumerate(block.headers):
        justify: Any = "left" if i < block.text_columns else "right"
        framed.add_column(Text(visible(header)), justify=justify, no_wrap=True)
    for row in block.rows:
        framed.add_row(*map(Text, row))
    Console(file=plain_stream(sys.stdout)).print(framed)
