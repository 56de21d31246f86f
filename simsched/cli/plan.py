"""`simsched plan`: how many seeds a comparison needs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from simsched.cli.output import json_option, print_json, table


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--metric", default="jct_mean_s", show_default=True, help="The metric to compare.")
@click.option("--difference", type=click.FloatRange(min=0, max=10, min_open=True), default=0.05, show_default=True,
              help="The relative difference of two means to detect.")  # fmt: skip
@json_option
def plan(folder: Path, metric: str, difference: float, as_json: bool) -> None:
    """Compute how many seeds it takes to distinguish policies, from the variance of a pilot.

    RUN is the folder of a run with a few seeds. Each comparison with the reference has a power of 80 % for that
    difference, with a family-wise error rate of 5 %. The spread is an upper bound (80 %) of the pilot's.
    """
    from simsched.results import plan as planned, read_run

    found = planned(read_run(folder), metric, difference)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (
            f"{one.row} / {one.reference}",
            str(one.seeds),
            "-" if one.ratio is None else f"{one.ratio.mean:.3f}",
            "-" if one.spread is None else f"{one.spread:.3f}",
            "-" if one.needed is None else f"{one.needed:,}",
        )
        for one in found
    ]
    click.echo(
        table(("comparison", "pilot's seeds", f"ratio of {metric}", "sd of its logarithm", "seeds needed"), rows)
    )
    most = max((one.needed or 0 for one in found), default=0)
    if all(one.needed for one in found):
        click.echo(f"All at once, for a difference of {100 * difference:g} %: -o seeds={most}")
    else:
        click.echo("- if the pilot has a single seed, a value of 0 or less, or far too large a spread.")
