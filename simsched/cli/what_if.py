"""`simsched what-if`: what a change does to whom."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from simsched.cli.operator_options import make_plan, operator_options
from simsched.cli.output import json_option, print_json


@click.command("what-if")
@operator_options
@click.option("--change", "changes", multiple=True, required=True, metavar="KEY=VALUE", help="A change. Repeatable.")
@json_option
def what_if(changes: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Replay a log before and after a change, and show who gains and who loses.

    A change is a key of an experiment, such as tenants.vision.max_gpus=64 or cluster.groups.0.nodes=50; policy.KEY is a
    parameter of the policy and policy=NAME another policy.
    """
    from simsched.operators.what_if import what_if as compare

    effects = compare(make_plan(**options), changes)
    if as_json:
        print_json([{**asdict(effect), "verdict": effect.verdict} for effect in effects])
        return
    from simsched.cli.groups import hours
    from simsched.cli.tables import print_table
    from simsched.report.tables import TextTable

    headers = (
        "jobs by", "", "jobs", "mean wait before (h)", "after (h)", "p90 before (h)", "p90 after (h)",
        "slow-down before", "slow-down after", "verdict",
    )  # fmt: skip
    rows = tuple(
        (
            effect.by, effect.before.group, f"{effect.before.jobs}", hours(effect.before.mean_wait_s),
            hours(effect.after.mean_wait_s), hours(effect.before.p90_wait_s), hours(effect.after.p90_wait_s),
            f"{effect.before.slowdown:.2f}", f"{effect.after.slowdown:.2f}", effect.verdict,
        )
        for effect in effects
    )  # fmt: skip
    note = "Gains and loses: the mean wait changes by more than a minute and a twentieth."
    print_table(TextTable(f"Change: {', '.join(changes)}", headers, rows, (note,), 2))
