"""Comparison of GPU types for `simsched application show`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.output import say_figures, table
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    from simsched.model import Application
    from simsched.model.tabulated import TabulatedModel
    from simsched.report.figures import Drawn


def compared_types(found: Application, gpu_type: str | None) -> tuple[str, ...]:
    """Return the requested GPU type, or all types of an application ("" if none)."""
    return (gpu_type,) if gpu_type is not None else found.gpu_types or ("",)


def print_ratios(rows: Sequence[dict[str, Any]], types: Sequence[str]) -> None:
    """Print each type's speed relative to the first by GPUs: the median over their common batch sizes."""
    speeds = {(row["gpu_type"], row["gpus"], row["batch_size"]): row["throughput"] for row in rows}
    counts = sorted({row["gpus"] for row in rows})
    sizes = sorted({row["batch_size"] for row in rows})
    lines = []
    for gpus in counts:
        cells = [str(gpus)]
        for kind in types:
            both = [
                speeds[kind, gpus, size] / speeds[types[0], gpus, size]
                for size in sizes
                if (kind, gpus, size) in speeds and (types[0], gpus, size) in speeds
            ]
            cells.append(f"{median(both):.2f}" if both else "-")
        lines.append(cells)
    click.echo(f"\nSpeed relative to {types[0]}, median over batch sizes:")
    click.echo(table(("GPUs", *types), lines, left=0))


def draw_types(rows: Sequence[dict[str, Any]], title: str, unit: str = "examples/s") -> Drawn:
    """Plot throughput over GPUs by type."""
    import pandas as pd

    from simsched.report.figures import types_figure

    return types_figure(pd.DataFrame(rows), title=title, unit=unit)


def show_rates(model: TabulatedModel, gpu_type: str | None, out: Path | None) -> None:
    """Print a tabulated application's steps per second by type, and plot them into `out` if given."""
    types = sorted(model.rates)
    if gpu_type is not None:
        if gpu_type not in types:
            message = f"there are no rates on '{gpu_type}'"
            raise input_error(f"application '{model.name}'", message, nearest(gpu_type, types))
        types = [gpu_type]
    settings = sorted({setting for kind in types for setting in model.rates[kind]})
    lines = []
    for setting in settings:
        rates = [model.rate(kind, setting) for kind in types]
        cells = [f"{rate:,.2f}" if rate else "-" for rate in rates]
        lines.append((str(setting.batch_size or "-"), str(setting.num_gpus), *cells))
    click.echo(f"{model.name}: steps per second")
    click.echo(table(("batch size", "GPUs", *types), lines, left=0))
    rows = [
        {"gpu_type": kind, "gpus": setting.num_gpus, "batch_size": setting.batch_size, "throughput": rate}
        for kind in types
        for setting, rate in sorted(model.rates[kind].items())
    ]
    if len(types) > 1:
        print_ratios(rows, types)
    if out is None:
        return
    from simsched.report.figures import save

    say_figures(save(*draw_types(rows, f"{model.name}: rates by GPU type", "steps/s"), out, f"{model.name}-types"))
