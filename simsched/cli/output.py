"""Printing: aligned tables that read as well in a pipe as in a terminal, and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from simsched.outlets import cells_wide, json_text, one_line

json_option = click.option("--json", "as_json", is_flag=True, help="Print machine-readable JSON.")


def print_json(content: object) -> None:
    """Print JSON, keys in the order given."""
    click.echo(json_text(content, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    """Convert what JSON does not know: numpy's numbers, mappings that cannot be changed, paths."""
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Lay out a table in columns that are as wide as they need; the first `left` ones begin at the left.

    A header may hold several lines; what else ends a line is shown, as it could only be part of a name.
    """
    cells = [list(headers), *[list(map(one_line, row)) for row in rows]]
    widths = [max(cells_wide(line) for row in cells for line in row[i].split("\n")) for i in range(len(headers))]
    rule = "  ".join("-" * width for width in widths)
    lines = [_row(cells[0], widths, left), rule, *(_row(row, widths, left) for row in cells[1:])]
    return "\n".join(lines)


def _row(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    split = [cell.split("\n") for cell in cells]
    height = max(len(lines) for lines in split)
    rows = []
    for number in range(height):
        parts = [lines[number] if number < len(lines) else "" for lines in split]
        aligned = [
            _filled(part, width, to_left=column < left)
            for column, (part, width) in enumerate(zip(parts, widths, strict=True))
        ]
        rows.append("  ".join(aligned).rstrip())
    return "\n".join(rows)


def _filled(text: str, width: int, *, to_left: bool) -> str:
    blanks = " " * (width - cells_wide(text))
    return text + blanks if to_left else blanks + text


def shorten(text: str, width: int = 72) -> str:
    """Cut a text to the first sentence and a width."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
