"""`simsched capacity`: how many nodes a log needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from simsched.cli.gate import LOG, print_answer, publish_answer, tried
from simsched.cli.operator_options import NO_PAGE, NODE_PRICE, TRUST_ANYWAY, LogOptions, Manifests, answer_plans
from simsched.cli.options import COUNT, JSON, command, opt

if TYPE_CHECKING:
    from simsched.operators import Answer, Calibration, Target
    from simsched.report import TextTable
    from simsched.report.page import Section


@command()
def capacity(
    log: Path = LOG,
    *,
    how: LogOptions,
    target: str = opt("What to reach, e.g. 'queueing_p90_h<=1'.", metavar="METRIC<=X"),
    node_price: float | None = NODE_PRICE,
    seeds: int = opt("Runs of each size.", type=COUNT, default=1),
    manifests: Manifests,
    trust_anyway: bool = TRUST_ANYWAY,
    no_plots: bool = NO_PAGE,
    as_json: bool = JSON,
) -> None:
    """Find how many nodes of each type a log needs to meet a target, with the other types unchanged.

    First, the replay of today's cluster is compared with the recorded waits; if they do not match, the answer is the
    misfit. If the log records that today's nodes miss the target, the command never recommends fewer. The result goes
    to the page answers.html of the log's results.

    LOG may be a folder of Kubernetes manifests: added nodes are copies of their kind, rack by rack, and the quotas of
    their flavors grow with them. Manifests do not record waits, so such an answer carries a caveat.
    """
    from simsched.operators import Target, calibrate, find_capacity

    wanted = Target.parse(target)
    plan, _ = answer_plans(log, how, manifests, node_price_per_h=node_price, seeds=seeds, grows=True)
    found = calibrate(plan, progress=tried)
    groups = range(len(plan.groups)) if found.verdict.is_open or trust_anyway or plan.unrecorded else ()
    answers = [find_capacity(found, wanted, group=group, progress=tried) for group in groups]
    section = _section(answers, target, wanted)
    paths = [] if no_plots else _published(found, section, answers, target, wanted)
    content = {"answers": [asdict(answer) for answer in answers], "figures": [str(path) for path in paths]}
    print_answer(found, section, paths, content, what="recommendation", as_json=as_json)


def _label(wanted: Target) -> str:
    from simsched.results import find_metric

    reading = find_metric(wanted.metric)
    return f"{reading.title} ({reading.unit})" if reading.unit else reading.title


def _section(answers: Sequence[Answer], target: str, wanted: Target) -> Section:
    from simsched.report.page import Section

    heading, goal = "How many nodes are needed?", f"Target: {_label(wanted)} {wanted.sign} {wanted.bound:g}."
    tables = [_table(answer, target, wanted.metric) for answer in answers]
    findings = [table.notes[0] for table in tables]
    none = "No recommendation: the replay does not match this log, as shown above."
    sentence = " ".join([goal, *findings] if tables else [none, goal])
    words = [*findings, goal] if tables else [goal, none]
    return Section("capacity", heading, words, tables, question=target, sentence=sentence)


def _published(
    found: Calibration, section: Section, answers: Sequence[Answer], target: str, wanted: Target
) -> list[Path]:
    from simsched.report.figures import capacity_curve

    if not answers:
        return publish_answer(found, section)
    curves = {
        f"nodes of {answer.gpu_type}": [(one.nodes, one.value, one.cost_per_month) for one in answer.points]
        for answer in answers
    }
    return publish_answer(
        found,
        section,
        f"Capacity for {target}",
        lambda title: capacity_curve(curves, metric=_label(wanted), bound=wanted.bound, title=title),
    )


def _table(answer: Answer, target: str, metric: str) -> TextTable:
    from simsched.report import TextTable, estimate_text

    priced = answer.cost_per_month is not None or any(one.cost_per_month is not None for one in answer.points)
    rows = tuple(
        (f"{one.nodes}", f"{one.gpus}", estimate_text(one.estimate), f"{one.value:.3g}{' (log)' * one.recorded}")
        + ("yes" if one.met else "no",)
        + ((f"{one.cost_per_month:,.0f}",) if one.cost_per_month is not None else ())
        for one in answer.points
    )
    finding = "no number tried is enough" if answer.nodes is None else f"{answer.nodes} nodes are enough"
    finding += f" ({answer.now} today)"
    if answer.cost_per_month is not None:
        finding += f", and the whole cluster then costs ${answer.cost_per_month:,.0f} a month (730 hours)"
    notes = (
        f"Nodes of {answer.gpu_type}: {finding}.",
        *["More nodes were worse at some point; the answer holds for all larger numbers tried."]
        * (not answer.monotone),
        "With misfit: the replay's value times today's ratio of recorded to replayed, if worse; (log): recorded.",
    )
    headers = ("nodes", "GPUs in all", f"{metric}, replayed", "with misfit", "met")
    return TextTable(target, headers + ("cost of the cluster ($/month)",) * priced, rows, notes, 0)
