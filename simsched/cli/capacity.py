"""`simsched capacity`: how many nodes a log needs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.operator_options import make_plan, operator_options
from simsched.cli.output import json_option, print_json

if TYPE_CHECKING:
    from simsched.operators import Answer
    from simsched.report import TextTable


@click.command()
@operator_options
@click.option("--target", required=True, metavar="METRIC<=X", help="What to reach, e.g. 'queueing_p90_h<=1'.")
@click.option("--node-price", type=click.FloatRange(min=0), metavar="DOLLARS", help="Of an hour of a node.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of each size.")
@click.option("--no-plots", is_flag=True, help="Draw no picture and write no page.")
@json_option
def capacity(target: str, node_price: float | None, seeds: int, no_plots: bool, as_json: bool, **options: Any) -> None:
    """Find how many nodes of each type, the others staying as they are, a log needs to meet a target.

    What is found goes onto the page answers.html of the log's results.
    """
    from simsched.operators import Target, find_capacity

    wanted = Target.parse(target)
    plan = make_plan(**options, node_price_per_h=node_price, seeds=seeds)
    answers = [find_capacity(plan, wanted, group=group) for group in range(len(plan.groups))]
    tables = [_table(answer, target, wanted.metric) for answer in answers]
    paths: list[Path] = []
    if not no_plots:
        from simsched.cli.answers import publish
        from simsched.report.figures import capacity_curve
        from simsched.report.page import Section
        from simsched.results import find_metric

        curves = {
            f"nodes of {answer.gpu_type}": [(one.nodes, one.estimate.mean, one.cost_per_month) for one in answer.points]
            for answer in answers
        }
        reading = find_metric(wanted.metric)
        label = f"{reading.title} ({reading.unit})" if reading.unit else reading.title
        drawn = capacity_curve(curves, metric=label, bound=wanted.bound, title=f"Capacity for {target}")
        words = [f"Target: {label} {wanted.sign} {wanted.bound:g}.", *(table.notes[0] for table in tables)]
        paths = publish(plan, Section("capacity", "How many nodes are needed?", words, tables, [drawn]))
    if as_json:
        print_json({"answers": [asdict(answer) for answer in answers], "figures": [str(path) for path in paths]})
        return
    from simsched.cli.tables import print_table

    for table in tables:
        print_table(table)
    for path in paths:
        click.echo(f"{path}")


def _table(answer: Answer, target: str, metric: str) -> TextTable:
    from simsched.report import TextTable, estimate_text

    priced = answer.cost_per_month is not None or any(one.cost_per_month is not None for one in answer.points)
    rows = tuple(
        (f"{one.nodes}", f"{one.gpus}", estimate_text(one.estimate), "yes" if one.met else "no")
        + ((f"{one.cost_per_month:,.0f}",) if one.cost_per_month is not None else ())
        for one in answer.points
    )
    found = "no number tried is enough" if answer.nodes is None else f"{answer.nodes} nodes are enough"
    if answer.cost_per_month is not None:
        found += f", and the whole cluster then costs ${answer.cost_per_month:,.0f} a month (730 hours)"
    notes = [f"Nodes of {answer.gpu_type}: {found}."]
    if not answer.monotone:
        notes.append("More nodes made it worse somewhere; the answer holds for all larger numbers that were tried.")
    headers = ("nodes", "GPUs in all", metric, "met", *(("cost of the cluster ($ a month)",) if priced else ()))
    return TextTable(target, headers, rows, tuple(notes), 0)
