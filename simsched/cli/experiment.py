"""`simsched validate` and `simsched schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from simsched.cli.operator_options import experiment_of, refuse_manifest_options, run_manifest_options, takes_manifests
from simsched.cli.output import json_option, print_json
from simsched.stops import scratch_folder

overrides_option = click.option(
    "-o", "--override", "overrides", multiple=True, metavar="KEY=VALUE",
    help="Change a key, e.g. -o workload.jobs=20 or -o policies.pollux.params.fairness=1. Repeatable.",
)  # fmt: skip


def complete_experiment(context: click.Context, argument: click.Argument, begun: str) -> list[CompletionItem]:
    """Complete shipped experiments and files."""
    from simsched.experiment import shipped_experiments

    names = [name for name in shipped_experiments() if name.startswith(begun)]
    return [CompletionItem(begun, type="file"), *(CompletionItem(name) for name in names)]


experiment_argument = click.argument("experiment", shell_complete=complete_experiment)


@click.command()
@experiment_argument
@overrides_option
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="Manifests only: the policy. [default: kueue]"
)
@run_manifest_options
@json_option
def validate(
    experiment: str, overrides: tuple[str, ...], policies: tuple[str, ...], as_json: bool, **manifests: Any
) -> None:
    """Check an experiment, its data and its jobs, without running it.

    If a policy relies on physics that the experiment lacks, the command says what the policy becomes without them.

    If there are many cells, or seeds that each draw from a separate generated trace, the command creates only some:
    every policy at every point for the first seed. It prints their number. Other seeds are checked by the hardest jobs
    that the recipe can make; if these do not fit, the jobs of up to 200 cells are drawn as in a run.

    EXPERIMENT is a YAML file or the name of a shipped experiment, or a file or folder of Kubernetes manifests. All
    errors are reported at once; the exit code is 2 if there are any.
    """
    from simsched.api import check, grid_progress
    from simsched.experiment import find_experiment
    from simsched.results import what_policies_become

    if experiment != "-" and not takes_manifests(Path(experiment)):
        refuse_manifest_options(experiment, {"policy": policies})
    with scratch_folder() as folder:
        path = find_experiment(experiment_of(experiment, folder, policies, **manifests))
        found = check(path, overrides, grid_progress())
    path = Path(experiment) if path.is_relative_to(folder) else path
    total, looked_into = found.total, found.cells
    whole = len(looked_into) == total
    without = what_policies_become((cell.label, cell.task.about["without"]) for cell in looked_into)
    distinct = len({cell.task.key for cell in looked_into})
    said = {
        "experiment": found.name,
        "file": str(path),
        "count": total,
        "looked_into": len(looked_into),
        "without": without,
    }
    if as_json:
        cells = [{"policy": cell.label, "seed": cell.seed, "point": cell.point} for cell in looked_into]
        print_json(said | {"cells": cells, "distinct": distinct} if whole else said)
        return
    from simsched.words import counted

    jobs = sorted({len(cell.task.jobs) for cell in looked_into})
    number = f"{jobs[0]} jobs" if len(jobs) == 1 else f"{jobs[0]} to {jobs[-1]} jobs"
    rest = "" if whole else f", {len(looked_into)} of them checked"
    click.echo(f"{path}: valid; {counted(distinct if whole else total, 'cell')} of {number}{rest}")
    for sentence in without:
        click.echo(sentence)


@click.command()
def schema() -> None:
    """Print the JSON Schema of experiment files, for editors that complete and check YAML."""
    from simsched.experiment import json_schema

    print_json(json_schema())
