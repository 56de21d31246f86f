"""One table of texts for every outlet: terminal, Markdown, LaTeX and, in templates, HTML."""

from __future__ import annotations

import csv
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO

from simsched.outlets import cells_wide, csv_cell, latex_text, markdown_text, one_line, visible

#: Tables with more rows are pivoted by the last swept key, one column for each of its values.
_MOST_ROWS = 12
_GAP = 2
_LEAST_HEADER = 9


@dataclass(frozen=True)
class TextTable:
    """A table ready for display; the first `text_columns` columns are text, the others numbers.

    `best` are the cells, as row and column, that a table for a paper sets in bold.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    text_columns: int = 1
    best: frozenset[tuple[int, int]] = frozenset()

    def text(self, *, folded: bool = False) -> str:
        """Align the columns for a terminal or a pipe, numbers to the right, without title and notes.

        Headers and cells of a `folded` table may span lines; elsewhere line ends, which only names can hold, are
        escaped.
        """
        shown = visible if folded else one_line
        cells = [list(self.headers), *[list(map(shown, row)) for row in self.rows]]
        widths = [_width([row[i] for row in cells]) for i in range(len(self.headers))]
        rule = "  ".join("-" * width for width in widths)
        first, *others = (_aligned(row, widths, self.text_columns) for row in cells)
        return "\n".join([first, rule, *others])

    def blocks(self, width: int) -> Iterator[TextTable]:
        """Split the table into blocks of columns that fit a width, each with the text columns; headers are folded."""
        fixed = self.text_columns
        columns = [[header, *(row[i] for row in self.rows)] for i, header in enumerate(self.headers)]
        columns = [column if i < fixed else [_folded(column), *column[1:]] for i, column in enumerate(columns)]
        room = width - sum(_width(column) + _GAP for column in columns[:fixed])
        for group in _balanced([_width(column) + _GAP for column in columns[fixed:]], room + _GAP):
            own = columns[:fixed] + [columns[fixed + i] for i in group]
            yield replace(
                self,
                headers=tuple(column[0] for column in own),
                rows=tuple(zip(*(column[1:] for column in own), strict=True)) if own else (),
            )

    def markdown(self) -> str:
        """Format the table as Markdown, numbers aligned right, notes below."""
        rules = ["---" if place < self.text_columns else "---:" for place in range(len(self.headers))]
        lines = [f"| {' | '.join(cells)} |" for cells in (map(markdown_text, self.headers), rules)]
        lines += [f"| {' | '.join(map(markdown_text, row))} |" for row in self.rows]
        notes = ["", *map(markdown_text, self.notes)] if self.notes else []
        return "\n".join([*lines, *notes]) + "\n"

    def latex(self) -> str:
        """Format the table for LaTeX with the package booktabs, numbers aligned right and the best in bold.

        The caption is the title, the first note and what brackets mean, the label `tab:` and the title; the other notes
        are comments.
        """
        told = [note for place, note in enumerate(self.notes) if not place or note.startswith("In ")]
        columns = "l" * self.text_columns + "r" * (len(self.headers) - self.text_columns)
        caption = " ".join([f"{self.title}.", *told, *(["Best in bold."] if self.best else [])])
        label = re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
        rows = [[self._latex_cell(row, column) for column in range(len(self.headers))] for row in range(len(self.rows))]
        head, *lines = (" & ".join(cells) + r" \\" for cells in (map(latex_text, self.headers), *rows))
        return "\n".join(
            (
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{latex_text(caption)}}}",
                rf"\label{{tab:{label}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                head,
                r"\midrule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                *(f"% {one_line(note)}" for note in self.notes if note not in told),
                "",
            )
        )

    def _latex_cell(self, row: int, column: int) -> str:
        text = latex_text(self.rows[row][column])
        return rf"\textbf{{{text}}}" if (row, column) in self.best else text

    def pivoted(self) -> TextTable:
        """Pivot a table of many rows by its last swept key: a column for each value, a line for each metric and policy.

        Policies independent of the key repeat their value in all columns. Other tables are unchanged.
        """
        key = self.text_columns - 1
        values = [value for value in dict.fromkeys(row[key] for row in self.rows) if value]
        if key < 1 or len(self.rows) <= _MOST_ROWS or len(values) < 2:
            return self
        lines: list[tuple[str, ...]] = []
        best = set()
        for column in range(self.text_columns, len(self.headers)):
            groups: dict[tuple[str, ...], dict[str, int]] = {}
            for place, row in enumerate(self.rows):
                groups.setdefault(row[:key], {})[row[key]] = place
            for names, places in groups.items():
                of_values = [places.get(value, places.get("")) for value in values]
                best |= {(len(lines), 1 + key + i) for i, place in enumerate(of_values) if (place, column) in self.best}
                shown = ("-" if place is None else self.rows[place][column] for place in of_values)
                lines.append((self.headers[column], *names, *shown))
        headers = ("metric", *self.headers[:key], *(f"{self.headers[key]} {value}" for value in values))
        return replace(self, headers=headers, rows=tuple(lines), text_columns=1 + key, best=frozenset(best))


def csv_text(headers: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Write values as CSV, in full precision, such that no name acts as a formula."""
    written = StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerows(map(csv_cell, cells) for cells in (headers, *rows))
    return written.getvalue()


def _width(cells: Iterable[str]) -> int:
    return max(cells_wide(line) for cell in cells for line in cell.split("\n"))


def _aligned(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    """Align the lines of one row's cells."""
    split = [cell.split("\n") for cell in cells]
    lines = []
    for number in range(max(map(len, split))):
        parts = [column[number] if number < len(column) else "" for column in split]
        blanks = [" " * (width - cells_wide(part)) for part, width in zip(parts, widths, strict=True)]
        pairs = enumerate(zip(parts, blanks, strict=True))
        lines.append("  ".join(part + blank if i < left else blank + part for i, (part, blank) in pairs).rstrip())
    return "\n".join(lines)


def _folded(column: Sequence[str]) -> str:
    """Break the header of a column of numbers to the width of its cells."""
    width = max([_LEAST_HEADER, *map(cells_wide, column[1:])])
    return "\n".join(textwrap.wrap(column[0], width, break_long_words=False))


def _balanced(widths: Sequence[int], room: int) -> list[list[int]]:
    """Group columns into as few blocks as fit a room, as even as possible."""
    fewest = len(_groups(widths, room))
    sizes = range(max(widths, default=0), max(room, *widths, 0) + 1)
    return next(groups for size in sizes if len(groups := _groups(widths, size)) == fewest)


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
