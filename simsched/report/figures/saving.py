"""How figures are written to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from simsched.files import write_text, written_aside
from simsched.outlets import csv_cell, file_name
from simsched.report.figures.lettering import write_figure
from simsched.report.figures.paper import for_paper
from simsched.report.figures.style import FORMATS, NO_DATES, Figure, styled


def save(
    figure: Figure, data: pd.DataFrame, folder: Path, name: str, formats: Sequence[str] = FORMATS, style: str = "page"
) -> list[Path]:
    """Write a figure and, as CSV, the data behind it; the same figure gives the same bytes.

    Each file is written under a temporary name and renamed when complete. Returns the paths, pictures first. A `style`
    for papers, see `simsched.report.figures.paper`, adds the LaTeX that sets the figure.
    """
    folder, name = Path(folder), file_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with styled():
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
