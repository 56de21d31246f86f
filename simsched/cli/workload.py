"""`simsched workload`: write the job list of an experiment's workload, and describe one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.new import force_option, refuse_to_overwrite
from simsched.cli.output import json_option, print_json, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simsched.model import JobSpec

options_option = click.option(
    "-o", "--option", "options", multiple=True, metavar="KEY=VALUE",
    help="A key of an experiment's 'workload', e.g. -o jobs=80, or of another part, e.g. -o applications.path=DIR.",
)  # fmt: skip


@click.group()
def workload() -> None:
    """Make and describe workloads, the job lists that experiments run."""


@workload.command()
@click.argument("target", metavar="OUT.csv", type=click.Path(path_type=Path))
@options_option
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@force_option
def make(target: Path, options: tuple[str, ...], seed: int, force: bool) -> None:
    """Write the jobs that an experiment with these workload options would run."""
    from simsched.workload import write_workload_csv

    refuse_to_overwrite(target, force)
    jobs = _jobs(options, seed)
    write_workload_csv(jobs, target)
    click.echo(f"{target}: {len(jobs)} jobs")


@workload.command()
@click.argument("source", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@options_option
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@json_option
def describe(source: Path | None, options: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Count the jobs of a workload CSV, or of the workload of these options, by request."""
    from simsched.workload import describe as counted

    given = options if source is None else (*options, f"path={source}")
    found = counted(_jobs(given, seed))
    if as_json:
        print_json(found.to_dict("records"))
        return
    rows = [
        (
            row["application"],
            str(row["num_gpus"]),
            str(row["batch_size"] or "-"),
            str(row["jobs"]),
            f"{100 * row['share']:.1f}",
            str(row["first_submit_s"]),
            str(row["last_submit_s"]),
        )
        for row in found.to_dict("records")
    ]
    click.echo(table(("application", "GPUs", "batch size", "jobs", "%", "first submit (s)", "last submit (s)"), rows))
    click.echo(f"{int(found['jobs'].sum())} jobs")


def _jobs(options: tuple[str, ...], seed: int) -> Sequence[JobSpec]:
    from simsched.experiment import CellInputs, check_workload

    spec = check_workload(options)
    return CellInputs().gathered(spec.workload, "", seed, spec).jobs
