"""`simsched capacity`: how many nodes a log needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.gate import trust_option
from simsched.cli.operator_options import answer_plans, manifest_options, operator_options
from simsched.cli.output import json_option, print_json

if TYPE_CHECKING:
    from simsched.operators import Answer, Calibration, Target
    from simsched.report import TextTable


@click.command()
@operator_options()
@click.option("--target", required=True, metavar="METRIC<=X", help="What to reach, e.g. 'queueing_p90_h<=1'.")
@click.option("--node-price", type=click.FloatRange(min=0), metavar="DOLLARS", help="Price of a node per hour.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of each size.")
@manifest_options
@trust_option
@click.option("--no-plots", is_flag=True, help="Do not draw a figure or write a page.")
@json_option
def capacity(
    target: str, node_price: float | None, seeds: int, trust_anyway: bool, no_plots: bool, as_json: bool, **options: Any
) -> None:
    """Find how many nodes of each type a log needs to meet a target, with the other types unchanged.

    First, the replay of today's cluster is compared with the recorded waits; if they do not match, the answer is the
    misfit. If the log records that today's nodes miss the target, the command never recommends fewer. The result goes
    to the page answers.html of the log's results.

    LOG may be a folder of Kubernetes manifests: added nodes are copies of their kind, rack by rack, and the quotas of
    their flavors grow with them. Manifests do not record waits, so such an answer carries a caveat.
    """
    from simsched.cli.gate import publish_verdict, refused, tried, verdict_json
    from simsched.operators import Target, calibrate, find_capacity

    wanted = Target.parse(target)
    plan, _ = answer_plans(options, node_price_per_h=node_price, seeds=seeds, grows=True)
    found = calibrate(plan, progress=tried)
    groups = range(len(plan.groups)) if found.verdict.is_open or trust_anyway or plan.unrecorded else ()
    answers = [find_capacity(found, wanted, group=group, progress=tried) for group in groups]
    paths: list[Path] = []
    if not no_plots:
        if not plan.unrecorded:
            publish_verdict(found)
        paths = _publish(found, answers, target, wanted)
    if as_json:
        shown = {"gate": verdict_json(found), "answers": [asdict(answer) for answer in answers]}
        print_json({**shown, "figures": [str(path) for path in paths]})
    elif not answers:
        refused(found, plan, "recommendation", paths)
    else:
        _print(found, answers, target, wanted, paths)


def _print(found: Calibration, answers: Sequence[Answer], target: str, wanted: Target, paths: Sequence[Path]) -> None:
    from simsched.cli.gate import marked, say
    from simsched.cli.output import print_table

    click.echo(found.verdict.said())
    for answer in answers:
        print_table(marked(_table(answer, target, wanted.metric), found.verdict))
    say(paths)


def _publish(found: Calibration, answers: Sequence[Answer], target: str, wanted: Target) -> list[Path]:
    from simsched.cli.gate import marked, publish, titled, under_banner
    from simsched.report.figures import capacity_curve
    from simsched.report.page import Section
    from simsched.results import find_metric

    reading = find_metric(wanted.metric)
    label = f"{reading.title} ({reading.unit})" if reading.unit else reading.title
    said = f"Target: {label} {wanted.sign} {wanted.bound:g}."
    heading, verdict = "How many nodes are needed?", found.verdict
    if not answers:
        words = [said, "No recommendation: the replay does not match this log, as shown above."]
        none = Section("capacity", heading, words, trusted=False, question=target, sentence=" ".join(reversed(words)))
        return publish(found.plan, none)
    curves = {
        f"nodes of {answer.gpu_type}": [(one.nodes, one.value, one.cost_per_month) for one in answer.points]
        for answer in answers
    }
    title = titled(f"Capacity for {target}", verdict)
    drawn = capacity_curve(curves, metric=label, bound=wanted.bound, title=title)
    tables = [_table(answer, target, wanted.metric) for answer in answers]
    words = under_banner([*(table.notes[0] for table in tables), said], verdict)
    marked_tables = [marked(table, verdict) for table in tables]
    sentence = titled(f"{said} {' '.join(table.notes[0] for table in tables)}", verdict)
    section = Section("capacity", heading, words, marked_tables, [drawn], verdict.is_open, target, sentence)
    return publish(found.plan, section)


def _table(answer: Answer, target: str, metric: str) -> TextTable:
    from simsched.report import TextTable, estimate_text

    priced = answer.cost_per_month is not None or any(one.cost_per_month is not None for one in answer.points)
    rows = tuple(
        (f"{one.nodes}", f"{one.gpus}", estimate_text(one.estimate), f"{one.value:.3g}{' (log)' * one.recorded}")
        + ("yes" if one.met else "no",)
        + ((f"{one.cost_per_month:,.0f}",) if one.cost_per_month is not None else ())
        for one in answer.points
    )
    found = "no number tried is enough" if answer.nodes is None else f"{answer.nodes} nodes are enough"
    found += f" ({answer.now} today)"
    if answer.cost_per_month is not None:
        found += f", and the whole cluster then costs ${answer.cost_per_month:,.0f} a month (730 hours)"
    notes = [f"Nodes of {answer.gpu_type}: {found}."]
    if not answer.monotone:
        notes.append("More nodes were worse at some point; the answer holds for all larger numbers tried.")
    notes.append(
        "With misfit: the replay's value times today's ratio of recorded to replayed, if worse; (log): recorded."
    )
    headers = (
        "nodes",
        "GPUs in all",
        f"{metric}, replayed",
        "with misfit",
        "met",
        *(("cost of the cluster ($/month)",) if priced else ()),
    )
    return TextTable(target, headers, rows, tuple(notes), 0)
