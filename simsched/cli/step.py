"""`simsched step`: step through a simulation by decisions."""

from __future__ import annotations

import click

from simsched.cli.experiment import experiment_argument, overrides_option

_HELP = "Enter: next decision; a number: to that second; the id of a job: to its next placement; q: quit"


@click.command()
@experiment_argument
@overrides_option
@click.option("--policy", metavar="LABEL", help="Policy to run. [default: the first]")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, metavar="N")
def step(experiment: str, overrides: tuple[str, ...], policy: str | None, seed: int) -> None:
    """Step through a simulation interactively; show queue and cluster after each decision.

    At the prompt, Enter shows the next decision, a number skips to the first decision at or after that second, the id
    of a job skips to its next placement, and q quits. Nothing is written.
    """
    from simsched.api import steps, task_of
    from simsched.cli.learn import changes_of
    from simsched.experiment import find_experiment

    task = task_of(find_experiment(experiment), changes_of(overrides), seed, [policy] if policy else [])
    known = {job.id for job in task.jobs}
    click.echo(f"{task.policy.name}, seed {seed}, {len(known)} jobs. {_HELP}.", err=True)
    wanted = ""
    for one in steps(task):
        if wanted in known and wanted not in one.placed:
            continue
        if wanted not in known and wanted and one.time_s < float(wanted):
            continue
        click.echo(one.text)
        wanted = _asked(known)
        if wanted == "q":
            return
    if wanted:
        click.echo(f"'{wanted}' does not occur any more", err=True)
    click.echo("all jobs are complete")


def _asked(known: set[str]) -> str:
    """Ask until the answer is valid; the end of the input quits."""
    while True:
        try:
            answer: str = click.prompt(">", default="", show_default=False, prompt_suffix=" ", err=True).strip()
        except click.Abort:
            return "q"
        if answer in {"", "q"} or answer in known or answer.replace(".", "", 1).isdecimal():
            return answer
        click.echo(f"there is no job '{answer}'. {_HELP}.", err=True)
