"""`simsched application pairs`: measured speeds of jobs that share a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.output import say_figures, write_file
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    import pandas as pd

    from simsched.model.colocation import PairTable

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
