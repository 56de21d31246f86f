"""`simsched what-if`: whom a change affects, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.operator_options import make_plan, operator_options
from simsched.cli.output import json_option, print_json

if TYPE_CHECKING:
    from simsched.operators import Effect, ReplayPlan
    from simsched.report import TextTable

#: The most groups shown of a kind.
_MOST = 12


@click.command("what-if")
@operator_options
@click.option("--change", "changes", multiple=True, required=True, metavar="KEY=VALUE", help="A change. Repeatable.")
@click.option("--by", multiple=True, type=click.Choice(["tenant", "queue", "user", "size"]), help="Only these groups.")
@click.option("--no-plots", is_flag=True, help="Draw no picture and write no page.")
@json_option
def what_if(changes: tuple[str, ...], by: tuple[str, ...], no_plots: bool, as_json: bool, **options: Any) -> None:
    """Replay a log before and after a change, and show who gains and who loses.

    A change is a key of an experiment, such as tenants.vision.max_gpus=64 or cluster.groups.0.nodes=50; policy.KEY is a
    parameter of the policy and policy=NAME another policy. What is found goes onto the page answers.html of the log's
    results.
    """
    from simsched.operators import ALL_KINDS, what_if as compare

    plan = make_plan(**options)
    effects = compare(plan, changes, by=[kind for kind in ALL_KINDS if not by or kind in by])
    shown = _shown(effects)
    paths: list[Path] = []
    if not no_plots:
        paths = _publish(plan, changes, effects, shown)
    if as_json:
        print_json([{**asdict(effect), "verdict": effect.verdict} for effect in effects])
        return
    from simsched.cli.tables import print_table

    print_table(_table(shown, len(effects) - len(shown), changes))
    for path in paths:
        click.echo(f"{path}")


def _shown(effects: Sequence[Effect]) -> list[Effect]:
    """Drop, of kinds with many groups, those whose mean wait changes least, and repeats of the total."""
    kept: list[Effect] = []
    for kind in dict.fromkeys(effect.by for effect in effects):
        groups = [effect for effect in effects if effect.by == kind and effect.before.group != "all"]
        groups.sort(key=lambda one: -abs(one.after.mean_wait_s - one.before.mean_wait_s))
        names = {effect.before.group for effect in groups[:_MOST]}
        kept += [effect for effect in effects if effect.by == kind and effect.before.group in names]
    return [*kept, next(effect for effect in effects if effect.before.group == "all")]


def _publish(
    plan: ReplayPlan, changes: Sequence[str], effects: Sequence[Effect], shown: Sequence[Effect]
) -> list[Path]:
    import pandas as pd

    from simsched.cli.answers import publish
    from simsched.report.figures import wait_changes
    from simsched.report.page import Section

    rows = [
        (one.by, one.before.group, one.before.mean_wait_s / 3600, one.after.mean_wait_s / 3600, one.verdict)
        for one in shown
    ]
    data = pd.DataFrame(rows, columns=["by", "group", "before_h", "after_h", "verdict"])
    data.loc[data["group"] == "all", ["by", "group"]] = ["all", "jobs"]
    drawn = wait_changes(data, title="Who gains and who loses")
    table = _table(shown, len(effects) - len(shown), changes)
    words = [f"Change: {', '.join(changes)}.", _answer(shown[-1]), *_winners(effects), _cut(shown[-1])]
    return publish(plan, Section("what-if", "What would a change do, and to whom?", words, [table], [drawn]))


def _answer(every: Effect) -> str:
    before, after = every.before.mean_wait_s / 3600, every.after.mean_wait_s / 3600
    return (
        f"On average a job waits {after:.2f} h instead of {before:.2f} h. {100 * every.sooner:.0f} % of the jobs wait "
        f"less than before, {100 * every.later:.0f} % more."
    )


def _cut(every: Effect) -> str:
    return f"Jobs that end at a limit or are cancelled: {every.cut_before} before, {every.cut_after} after."


def _winners(effects: Sequence[Effect]) -> list[str]:
    """Name the tenants, queues and sizes that gain or lose."""
    said = []
    for verdict, words in (("gains", "Less wait for"), ("loses", "More wait for")):
        named = [one for one in effects if one.verdict == verdict and one.by != "user" and one.before.group != "all"]
        if named:
            said.append(f"{words} {', '.join(f'{one.by} {one.before.group}' for one in named)}.")
    return said


def _table(shown: Sequence[Effect], hidden: int, changes: Sequence[str]) -> TextTable:
    from simsched.cli.groups import hours
    from simsched.report import TextTable

    headers = (
        "jobs by", "", "jobs", "mean wait before (h)", "after (h)", "p90 before (h)", "p90 after (h)",
        "slow-down before", "slow-down after", "sooner (%)", "later (%)", "verdict",
    )  # fmt: skip
    rows = tuple(
        (
            "" if effect.before.group == "all" else effect.by, effect.before.group, f"{effect.before.jobs}",
            hours(effect.before.mean_wait_s), hours(effect.after.mean_wait_s), hours(effect.before.p90_wait_s),
            hours(effect.after.p90_wait_s), f"{effect.before.slowdown:.2f}", f"{effect.after.slowdown:.2f}",
            f"{100 * effect.sooner:.0f}", f"{100 * effect.later:.0f}", effect.verdict,
        )
        for effect in shown
    )  # fmt: skip
    groups = hidden - (len({effect.by for effect in shown}) - 1)
    notes = [
        "Sooner and later: the shares of jobs that wait less and more than before.",
        "Gains and loses: the mean wait changes by more than a minute and a twentieth.",
    ]
    every = shown[-1]
    if every.cut_before or every.cut_after:
        notes.append(_cut(every))
    if groups > 0:
        notes.append(f"{groups} groups whose mean wait changes less are left out; --json has all.")
    return TextTable(f"Change: {', '.join(changes)}", headers, rows, tuple(notes), 2)
