"""`simsched capacity`: how many nodes a log needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from simsched.cli.operator_options import make_plan, operator_options
from simsched.cli.output import json_option, print_json


@click.command()
@operator_options
@click.option("--target", required=True, metavar="METRIC<=X", help="What to reach, e.g. 'queueing_p90_h<=1'.")
@click.option("--node-price", type=click.FloatRange(min=0), metavar="DOLLARS", help="Of an hour of a node.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of each size.")
@click.option("--no-plots", is_flag=True, help="Draw no picture.")
@json_option
def capacity(target: str, node_price: float | None, seeds: int, no_plots: bool, as_json: bool, **options: Any) -> None:
    """Find how many nodes of each type, the others staying as they are, a log needs to meet a target."""
    from simsched.operators.capacity import Target, find_capacity

    wanted = Target.parse(target)
    plan = make_plan(**options, node_price_per_h=node_price, seeds=seeds)
    answers = [find_capacity(plan, wanted, group=group) for group in range(len(plan.groups))]
    paths = []
    if not no_plots:
        from simsched.report.figures.capacity import capacity_curve
        from simsched.report.figures.style import save

        curves = {
            f"nodes of {answer.gpu_type}": [(point.nodes, point.estimate.mean) for point in answer.points]
            for answer in answers
        }
        drawn = capacity_curve(curves, metric=wanted.metric, bound=wanted.bound, title=f"Capacity for {target}")
        paths = save(*drawn, plan.folder / "figures", "capacity")
    if as_json:
        print_json({"answers": [asdict(answer) for answer in answers], "figures": [str(path) for path in paths]})
        return
    from simsched.cli.tables import print_table
    from simsched.report.tables import TextTable, estimate_text

    for answer in answers:
        rows = tuple(
            (f"{point.nodes}", f"{point.gpus}", estimate_text(point.estimate), "yes" if point.met else "no")
            for point in answer.points
        )
        found = "no number tried is enough" if answer.nodes is None else f"{answer.nodes} nodes are enough"
        notes = [f"Nodes of {answer.gpu_type}: {found}."]
        if answer.cost_per_month is not None:
            notes.append(f"The whole cluster then costs ${answer.cost_per_month:,.0f} a month (730 hours).")
        if not answer.monotone:
            notes.append("More nodes made it worse somewhere; the answer holds for all larger numbers that were tried.")
        print_table(TextTable(target, ("nodes", "GPUs in all", wanted.metric, "met"), rows, tuple(notes), 0))
    for path in paths:
        click.echo(f"{path}")
