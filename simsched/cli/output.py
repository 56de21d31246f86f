"""Output as aligned tables, for terminals and pipes, and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from simsched.errors import input_error
from simsched.files import write_text
from simsched.outlets import cells_wide, json_text, one_line, visible

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


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, folded: bool = False) -> str:
    """Align a table, the first `left` columns to the left.

    Headers and cells of a `folded` table may span lines; elsewhere line ends, which only names can hold, are escaped.
    """
    shown = visible if folded else one_line
    cells = [list(headers), *[list(map(shown, row)) for row in rows]]
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
    """Truncate text to its first sentence and a width."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
