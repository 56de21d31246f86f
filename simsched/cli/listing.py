"""`simsched list`: the available policies, agents, metrics and more."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from simsched.cli.output import json_option, print_json, table

if TYPE_CHECKING:
    from simsched.experiment import PolicyCard

_KINDS = ("policies", "agents", "applications", "traces", "experiments", "metrics", "figures")
#: The least width of the last column on a terminal.
_NARROWEST = 40
_Rows = tuple[Sequence[str], Sequence[Sequence[str]]]


@click.command("list")
@click.argument("kind", type=click.Choice(_KINDS), metavar="KIND")
@json_option
def list_(kind: str, as_json: bool) -> None:
    """List policies, agents, applications, traces, experiments, metrics or figures.

    KIND is one of these words. Nothing is cut: on a terminal long lines wrap, elsewhere each entry is a line.
    """
    headers, rows = {
        "policies": _policies,
        "agents": _agents,
        "applications": _applications,
        "traces": _traces,
        "experiments": _experiments,
        "metrics": _metrics,
        "figures": _figures,
    }[kind]()
    if as_json:
        print_json([dict(zip(headers, row, strict=True)) for row in rows])
        return
    *names, last = map(list, zip(*rows, strict=True))
    if sys.stdout.isatty():  # elsewhere a line is an entry, and nothing is cut
        taken = sum(max(map(len, (header, *column))) + 2 for header, column in zip(headers, names, strict=False))
        room = max(shutil.get_terminal_size().columns - taken, _NARROWEST)
        last = ["\n".join(textwrap.wrap(text, room)) for text in last]
    click.echo(table(headers, list(zip(*names, last, strict=True)), left=len(headers), folded=True))


def _policies() -> _Rows:
    from simsched.experiment import policy_card
    from simsched.policy import registry

    cards = map(policy_card, registry.names())
    rows = [(card.name, card.group, _title(card)) for card in cards]
    return ("policy", "class", "what it does (more: simsched show policy NAME)"), rows


def _title(card: PolicyCard) -> str:
    """Return the summary of a policy, with the release of the scheduler that it follows, if any."""
    release = f" ({card.follows.partition(' (')[0]})" if card.follows else ""
    return _after_name(card.title) + release


def _agents() -> _Rows:
    import inspect

    from simsched.agent import registry

    rows = [(name, (inspect.getdoc(registry.load(name)) or "").split("\n")[0]) for name in registry.names()]
    return ("agent", "what it does (agent: {name: ...} of a policy)"), rows


def _after_name(title: str) -> str:
    """Remove the name at the start of a title."""
    name, colon, rest = title.partition(": ")
    said = rest if colon and len(name) < 30 else title
    return said[:1].upper() + said[1:]


def _applications() -> _Rows:
    from simsched.applications import catalogue
    from simsched.applications.plans import shipped_llms

    rows = []
    for name, application in sorted(catalogue().applications.items()):
        limits = application.limits
        batches = f"{limits.init_batch_size} to {limits.max_batch_size}" if limits else "-"
        rows.append((name, batches, str(application.max_gpus or "-"), str(application.epochs)))
    for name, model in shipped_llms().items():
        rows.append((name, f"{model.global_batch} sequences", "-", "1"))
    return ("application", "batch size", "max GPUs", "epochs"), rows


def _traces() -> _Rows:
    from simsched.paths import data_folder
    from simsched.workload import GENERATED

    files = sorted(path for path in data_folder("traces").iterdir() if ".csv" in path.suffixes)
    rows = [(path.name.split(".")[0], "shipped", str(path)) for path in files]
    return ("trace", "kind", "where"), [*rows, (GENERATED, "generated", "generated for each seed")]


def _experiments() -> _Rows:
    from simsched.documents import yaml_lines
    from simsched.experiment import shipped_experiments

    rows = []
    for name, path in shipped_experiments().items():
        rows.append((name, " ".join(str(yaml_lines.load(path).data.get("description", "")).split())))
    return ("experiment", "what it shows"), rows


def _metrics() -> _Rows:
    from simsched.results import METRICS

    rows = [(metric.name, metric.unit or "-", " ".join(metric.meaning.split())) for metric in METRICS.values()]
    return ("metric", "unit", "meaning"), rows


def _figures() -> _Rows:
    from simsched.report.figures import FIGURES

    return ("figure", "what it shows"), list(FIGURES.items())
