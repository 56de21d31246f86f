"""`simsched validate` and `simsched schema`."""

from __future__ import annotations

import click

from simsched.cli.output import json_option, print_json

overrides_option = click.option(
    "-o", "--override", "overrides", multiple=True, metavar="KEY=VALUE",
    help="Change a key, e.g. -o workload.jobs=20 or -o policies.pollux.params.fairness=1. Repeatable.",
)  # fmt: skip


@click.command()
@click.argument("experiment")
@overrides_option
@json_option
def validate(experiment: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check an experiment, its data and its jobs, without running it.

    EXPERIMENT is a YAML file or the name of a shipped experiment. All errors are reported at once; the exit code is 2
    if there are any.
    """
    from simsched.api.progress import grid_progress
    from simsched.experiment.grid import make_grid
    from simsched.experiment.shipped import find_experiment
    from simsched.experiment.validation import read_experiment

    path = find_experiment(experiment)
    grid = make_grid(read_experiment(path, overrides), grid_progress())
    spec = grid.experiment.spec
    whole = grid.looked_into == len(grid.cells)
    if as_json and not whole:
        print_json(
            {"experiment": spec.name, "file": str(path), "count": len(grid.cells), "looked_into": grid.looked_into}
        )
        return
    if as_json:
        cells = [{"policy": cell.label, "seed": cell.seed, "point": cell.point} for cell in grid.cells]
        print_json({"experiment": spec.name, "file": str(path), "cells": cells, "distinct": len(grid.tasks)})
        return
    if not whole:
        click.echo(f"{path}: valid; {len(grid.cells)} cells, {grid.looked_into} of them looked into")
        return
    jobs = sorted({len(task.jobs) for task in grid.tasks})
    number = f"{jobs[0]} jobs" if len(jobs) == 1 else f"{jobs[0]} to {jobs[-1]} jobs"
    click.echo(f"{path}: valid; {len(grid.tasks)} cells of {number}")


@click.command()
def schema() -> None:
    """Print the JSON Schema of an experiment file, for editors that complete and check YAML."""
    from simsched.experiment.spec import json_schema

    print_json(json_schema())
