"""`simsched application pairs`: tables of pairs of jobs that share a GPU."""

from __future__ import annotations

from pathlib import Path

import click

from simsched.cli.new import refuse_to_overwrite
from simsched.cli.options import arg, command, figures, opt
from simsched.cli.output import say_figures, write_file
from simsched.errors import input_error, nearest

_TARGET = arg("OUT.csv")
_PAIRS = arg("PAIRS.csv")
_COLUMNS = ["application", "batch_size", "other_application", "other_batch_size", "speed", "other_speed", "sum"]


@click.group()
def pairs() -> None:
    """Import, create and check tables of pairs of jobs that share a GPU."""


@command(pairs, "import")
def import_(source: Path = arg("THROUGHPUTS.json"), target: Path = _TARGET) -> None:
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


@command(pairs)
def template(target: Path = _TARGET) -> None:
    """Write a small table of pairs to start from."""
    from simsched.model.colocation import Kind, PairTable, write_pairs

    refuse_to_overwrite(target, force=False, remedy="name another")
    example = PairTable({("t4", Kind("cifar10", 128), Kind("ncf", 256)): (0.7, 0.8)})
    write_file(target, write_pairs(example))
    click.echo(target)


@command(pairs)
def validate(path: Path = _PAIRS) -> None:
    """Check a table of pairs and print its content."""
    from simsched.applications import read_pair_table

    table = read_pair_table(path, None)
    better = sum(1 for speeds in table.pairs.values() if sum(speeds) > 1)
    click.echo(f"{path}: {len(table.pairs)} pairs, of which {better} are faster together than one job alone")


@command(pairs)
def show(
    path: Path = _PAIRS,
    *,
    gpu_type: str | None = opt("A GPU type of the table. [default: all]", metavar="TYPE"),
    out: Path = figures("figures"),
) -> None:
    """Draw which pairs are faster together than one job alone, one map per GPU type."""
    import pandas as pd

    from simsched.applications import read_pair_table
    from simsched.report.figures import pairs_map, save

    rows = [
        (kind, *first, *second, *speeds, sum(speeds))
        for (kind, one, other), (speed, other_speed) in sorted(read_pair_table(path, None).pairs.items())
        for first, second, speeds in ((one, other, (speed, other_speed)), (other, one, (other_speed, speed)))
    ]
    data = pd.DataFrame(rows, columns=["gpu_type", *_COLUMNS]).drop_duplicates(subset=["gpu_type", *_COLUMNS[:4]])
    types = sorted(data["gpu_type"].unique())
    if gpu_type is not None and gpu_type not in types:
        raise input_error("--gpu-type", f"{path} has no pairs on '{gpu_type}'", nearest(gpu_type, types))
    for kind in types if gpu_type is None else [gpu_type]:
        own = data[data["gpu_type"] == kind][_COLUMNS].reset_index(drop=True)
        say_figures(save(*pairs_map(own, title=f"{path.stem}: pairs on {kind.upper()}"), out, f"pairs-{kind}"))
