"""`simsched pack`: how much of a cluster placement rules allocate to pods that request fractional GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.options import JSON, arg, command, figures, opt
from simsched.cli.output import print_json, print_table
from simsched.errors import input_error
from simsched.toolkit.packing import NODE_ORDERS, RULES, NodeOrder

if TYPE_CHECKING:
    from simsched.operators import Packed

#: The results of each rule, by pod list.
_Found = Mapping[str, Mapping[str, "Packed"]]
_Published = Mapping[tuple[str, str], float]


@command()
def pack(
    files: tuple[Path, ...] = arg("[PODS... NODES]"),
    *,
    example: bool = opt("Use the small, synthetic lists that ship."),
    rules: tuple[str, ...] = opt("Only this rule; may be repeated.", "--rule", type=click.Choice(RULES)),
    seeds: int = opt("Number of arrivals and orders of the nodes.", type=click.IntRange(1, 1000), default=3),
    node_order: NodeOrder = opt(
        "Break ties by an order of nodes drawn for each seed, or by name.", default=NODE_ORDERS[0]
    ),
    demand: float = opt(
        "Total requests, in per cent of the cluster's GPUs.",
        metavar="PERCENT",
        type=click.FloatRange(1, 1000),
        default=130,
    ),
    published: Path | None = opt("CSV of published means for comparison."),
    out: Path = figures("results/packing"),
    no_plots: bool = opt("Do not draw figures."),
    as_json: bool = JSON,
) -> None:
    """Fill a cluster with pods drawn from a list, and show what each rule allocates.

    PODS (one or several) and NODES are CSV files as in Alibaba's cluster-trace-gpu-v2023.
    """
    from simsched.operators import pack as run_all, read_published
    from simsched.paths import data_folder
    from simsched.toolkit.packing import fit_nowhere
    from simsched.workload import read_nodes, read_pods

    lists, nodes_file = _files(files, data_folder("workloads") / "packing" if example else None)
    nodes = read_nodes(nodes_file)
    pods = {name: read_pods(path, nodes) for name, path in lists.items()}
    beside = read_published(published, list(lists)) if published else {}
    chosen = tuple(dict.fromkeys(rules)) or RULES
    found: dict[str, Mapping[str, Packed]] = {}
    for name, listed in pods.items():
        found[name] = run_all(
            nodes, listed, chosen, seeds, demand / 100, node_order=node_order,
            progress=partial(_tell, name),
        )  # fmt: skip
    homeless = {name: count for name, listed in pods.items() if (count := fit_nowhere(nodes, listed))}
    figures = [] if no_plots else _draw(found, seeds, out)
    if as_json:
        rows = [
            {"pods": name, **asdict(packed), "published": beside.get((name, rule))}
            for name, packs in found.items()
            for rule, packed in packs.items()
        ]
        told = {"node_order": node_order, "fit_nowhere": homeless, "figures": [str(path) for path in figures]}
        print_json({"rules": rows, **told})
        return
    _print(found, beside, published, _notes(demand, seeds, node_order, homeless))
    for path in figures:
        click.echo(f"{path}")


def _notes(demand: float, seeds: int, node_order: NodeOrder, homeless: Mapping[str, int]) -> list[str]:
    return [
        f"Pods came until they had requested {demand:g} % of the GPUs, and none left; mean over {seeds} seeds"
        + (" ±95 % interval." if seeds > 1 else "."),
        "A tie goes to the first node in " + _ORDER_TOLD[node_order],
        "Spread: standard deviation over arrivals with one order of the nodes (for random: one series of draws), and"
        " over orders (draws) with one series of arrivals.",
        "Unusable: share of the free GPUs that a random pod of the list could not use.",
        *(f"{count} pods of {name} do not fit on any empty node and are always rejected."
          for name, count in homeless.items()),
    ]  # fmt: skip


def _tell(name: str, rule: str) -> None:
    click.echo(f"{name}, {rule}", err=True)


#: Where a tie goes.
_ORDER_TOLD: Mapping[NodeOrder, str] = {
    "shuffled": "an order drawn once for each seed.",
    "names": "the order of their names.",
}


def _files(files: Sequence[Path], example: Path | None) -> tuple[Mapping[str, Path], Path]:
    """Return the pod lists by name, and the node list."""
    if (example is None and len(files) < 2) or (example is not None and files):
        message = "needs lists of pods and one of nodes"
        raise input_error("pack", message, "name the files, that of the nodes last, or give --example alone")
    paths = [example / "pods.csv", example / "nodes.csv"] if example else list(files)
    lists: dict[str, Path] = {}
    for path in paths[:-1]:
        name = path.name.split(".", 1)[0]
        if name in lists:
            raise input_error(path, f"there are two lists named {name}", "give each list once, or rename one")
        lists[name] = path
    return lists, paths[-1]


def _draw(found: _Found, seeds: int, out: Path) -> list[Path]:
    from simsched.report.figures import allocation_curves, save

    paths: list[Path] = []
    for name, packs in found.items():
        curves = {rule: (packed.demand, packed.curve) for rule, packed in packs.items()}
        drawn = allocation_curves(curves, title=f"GPUs allocated to the pods of {name}", seeds=seeds)
        paths += save(*drawn, out, "allocation" if len(found) == 1 else f"allocation-{name}")
    return paths


def _print(found: _Found, beside: _Published, source: Path | None, notes: Sequence[str]) -> None:
    from simsched.report import TextTable, estimate_text

    def percent(value: float) -> str:
        return f"{value * 100:.2f}"

    rows = []
    for name, rule, packed in ((name, rule, packed) for name, packs in found.items() for rule, packed in packs.items()):
        mean, known = packed.allocated.mean, beside.get((name, rule))
        against = ("-", "-") if known is None else (percent(known), f"{(mean - known) * 100:+.2f}")
        spreads = (packed.spread_arrivals, packed.spread_orders)
        rows.append(
            (
                name, rule, estimate_text(packed.allocated, 100, lambda value: f"{value:.2f}"),
                *(against if source else ()), *("-" if one is None else percent(one) for one in spreads),
                estimate_text(packed.unusable, 100), estimate_text(packed.refused),
            )
        )  # fmt: skip
    columns = (
        "pods", "rule", "GPUs allocated (%)", *(("published (%)", "difference (points)") if source else ()),
        "spread over arrivals (points)", "over orders (points)", "of the free, unusable (%)", "pods refused",
    )  # fmt: skip
    told = (*notes, f"Published: {source}.") if source else tuple(notes)
    print_table(TextTable("Packing", columns, tuple(rows), told, 2))
