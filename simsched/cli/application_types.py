"""Comparisons of GPU types and of pairs of jobs for `simsched application`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.output import say_figures, table, write_file
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    import pandas as pd

    from simsched.model import Application
    from simsched.model.colocation import PairTable
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


_COLUMNS = ["application", "batch_size", "other_application", "other_batch_size", "speed", "other_speed", "sum"]


@click.group()
def pairs() -> None:
    """Import, create and check tables of pairs of jobs that share a GPU."""


_out = click.argument("target", metavar="OUT.csv", type=click.Path(path_type=Path))


@pairs.command("import")
@click.argument("source", metavar="THROUGHPUTS.json", type=click.Path(path_type=Path))
@_out
def import_(source: Path, target: Path) -> None:
    """Read the pairs of single-GPU jobs published with Gavel (simulation_throughputs.json)."""
    from simsched.model.colocation import pairs_from_gavel, write_pairs
    from simsched.reading import read_json

    document = read_json(source, "name the table published with Gavel")
    try:
        table = pairs_from_gavel(document)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise input_error(source, "does not have the layout of the table published with Gavel") from None
    if not table.pairs:
        raise input_error(source, "holds no pairs of single-GPU jobs")
    write_file(target, write_pairs(table))
    click.echo(f"{target}: {len(table.pairs)} pairs on {', '.join(sorted({kind for kind, _, _ in table.pairs}))}")


@pairs.command()
@_out
def template(target: Path) -> None:
    """Write a small table of pairs to start from."""
    from simsched.model.colocation import Kind, PairTable, write_pairs

    if target.exists():
        raise input_error(target, "the file already exists", "name another")
    example = PairTable({("t4", Kind("cifar10", 128), Kind("ncf", 256)): (0.7, 0.8)})
    write_file(target, write_pairs(example))
    click.echo(target)


@pairs.command()
@click.argument("path", metavar="PAIRS.csv", type=click.Path(path_type=Path))
def validate(path: Path) -> None:
    """Check a table of pairs and print its content."""
    from simsched.applications import read_pair_table

    table = read_pair_table(path, None)
    better = sum(1 for speeds in table.pairs.values() if sum(speeds) > 1)
    click.echo(f"{path}: {len(table.pairs)} pairs, of which {better} are faster together than one job alone")


@pairs.command()
@click.argument("path", metavar="PAIRS.csv", type=click.Path(path_type=Path))
@click.option("--gpu-type", metavar="TYPE", help="A GPU type of the table. [default: all]")
@click.option("--out", metavar="DIR", default="figures", show_default=True, type=click.Path(path_type=Path))
def show(path: Path, gpu_type: str | None, out: Path) -> None:
    """Draw which pairs are faster together than one job alone, one map per GPU type."""
    from simsched.applications import read_pair_table
    from simsched.report.figures import pairs_map, save

    table = read_pair_table(path, None)
    known = sorted({kind for kind, _, _ in table.pairs})
    if gpu_type is not None and gpu_type not in known:
        raise input_error("--gpu-type", f"{path} has no pairs on '{gpu_type}'", nearest(gpu_type, known))
    for kind in known if gpu_type is None else [gpu_type]:
        data = _both_ways(table, kind)
        say_figures(save(*pairs_map(data, title=f"{path.stem}: pairs on {kind.upper()}"), out, f"pairs-{kind}"))


def _both_ways(table: PairTable, gpu_type: str) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for (kind, one, other), (speed, other_speed) in sorted(table.pairs.items()):
        if kind == gpu_type:
            rows.append((*one, *other, speed, other_speed, speed + other_speed))
            if one != other:
                rows.append((*other, *one, other_speed, speed, speed + other_speed))
    return pd.DataFrame(rows, columns=_COLUMNS)
