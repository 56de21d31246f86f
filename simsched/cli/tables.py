"""Prints the tables of `simsched.report.tables` in blocks that fit the width."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from simsched.cli.output import table as aligned
from simsched.outlets import cells_wide, one_line, plain_stream, shortened, visible

if TYPE_CHECKING:
    from simsched.report import TextTable

#: The default width.
_PAGE = 100
_GAP = 2
#: Longer names lose their middle.
_LONGEST = 80
_LEAST_HEADER = 9


def print_table(shown: TextTable) -> None:
    """Print a table and its notes: framed by rich on a terminal, aligned text elsewhere."""
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_PAGE, 24)).columns if on_terminal else _PAGE
    if shown.title:
        click.echo(one_line(shown.title))
    cells = tuple(tuple(shortened(one_line(cell), _LONGEST) for cell in row) for row in shown.rows)
    for number, (headers, rows) in enumerate(blocks(replace(shown, rows=cells), width)):
        if number:
            click.echo()
        if on_terminal:
            _print_framed(headers, rows, shown.text_columns)
        else:
            click.echo(aligned(headers, rows, left=shown.text_columns))
    for note in shown.notes:
        click.echo(one_line(note))


def blocks(shown: TextTable, width: int) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Split a table into blocks of columns that fit a width, repeating the text columns."""
    fixed = list(range(shown.text_columns))
    columns = [[header, *(row[i] for row in shown.rows)] for i, header in enumerate(shown.headers)]
    columns = [[_wrapped(column[0], column[1:], i in fixed), *column[1:]] for i, column in enumerate(columns)]
    room = width - sum(_width(columns[i]) + _GAP for i in fixed)
    widths = [_width(column) + _GAP for column in columns[len(fixed) :]]
    fewest = len(_groups(widths, room + _GAP))
    least = next(
        size
        for size in range(max(widths, default=0), max(room + _GAP, *widths, 0) + 1)
        if len(_groups(widths, size)) == fewest
    )  # balances the blocks
    for group in _groups(widths, least):
        yield _block(columns, [*fixed, *(len(fixed) + i for i in group)])


def _groups(widths: Sequence[int], room: int) -> list[list[int]]:
    """Group columns to fit the width, at least one per group."""
    groups: list[list[int]] = [[]]
    used = 0
    for i, width in enumerate(widths):
        if groups[-1] and used + width > room:
            groups.append([])
            used = 0
        groups[-1].append(i)
        used += width
    return groups


def _wrapped(header: str, cells: Sequence[str], is_text: bool) -> str:
    if is_text:
        return header
    width = max([_LEAST_HEADER, *map(cells_wide, cells)])
    return "\n".join(textwrap.wrap(header, width, break_long_words=False))


def _width(column: Sequence[str]) -> int:
    return max(cells_wide(line) for cell in column for line in cell.split("\n"))


def _block(columns: Sequence[Sequence[str]], chosen: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    headers = [columns[i][0] for i in chosen]
    rows = [list(row) for row in zip(*(columns[i][1:] for i in chosen), strict=True)]
    return headers, rows


def _print_framed(headers: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    framed = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, _GAP // 2))
    for i, header in enumerate(headers):
        framed.add_column(Text(visible(header)), justify="left" if i < text_columns else "right", no_wrap=True)
    for row in rows:
        framed.add_row(*map(Text, row))
    Console(file=plain_stream(sys.stdout)).print(framed)
