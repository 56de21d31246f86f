"""`simsched pack`: how much of a cluster rules give away to pods that ask for parts of GPUs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from simsched.cli.output import json_option, print_json
from simsched.errors import input_error

_RULES = ("random", "dot-product", "best-fit", "fgd")


@click.command()
@click.argument("pods", type=click.Path(path_type=Path), required=False)
@click.argument("nodes", type=click.Path(path_type=Path), required=False)
@click.option("--example", is_flag=True, help="Take the small, invented lists that are shipped.")
@click.option("--rule", "rules", type=click.Choice(_RULES), multiple=True, help="Only this rule; may be repeated.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Orders of the pods.")
@click.option(
    "--demand", type=click.FloatRange(1, 1000), default=130, show_default=True, metavar="PERCENT",
    help="Of the cluster's GPUs, asked for in all.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("results/packing"), show_default=True,
    help="Folder of the picture.",
)  # fmt: skip
@click.option("--no-plots", is_flag=True, help="Draw no picture.")
@json_option
def pack(
    pods: Path | None,
    nodes: Path | None,
    example: bool,
    rules: tuple[str, ...],
    seeds: int,
    demand: float,
    out: Path,
    no_plots: bool,
    as_json: bool,
) -> None:
    """Fill a cluster with the pods of a list, drawn again and again, and show what each rule gives away.

    PODS and NODES are CSV files as in Alibaba's cluster-trace-gpu-v2023.
    """
    from simsched.operators.packing import pack as run_all
    from simsched.paths import data_folder
    from simsched.workload.pods import read_nodes, read_pods

    if example == (pods is not None) or (pods is not None and nodes is None):
        raise input_error("pack", "needs a list of pods and one of nodes", "name both files, or give --example alone")
    shipped = data_folder("workloads") / "packing"
    pods, nodes = pods or shipped / "pods.csv", nodes or shipped / "nodes.csv"
    chosen = tuple(dict.fromkeys(rules)) or _RULES
    found = run_all(
        read_nodes(nodes), read_pods(pods), chosen, seeds, demand / 100,
        lambda rule, seed: click.echo(f"{rule}, seed {seed}", err=True),
    )  # fmt: skip
    paths = []
    if not no_plots:
        from simsched.report.figures.packing import allocation_curves
        from simsched.report.figures.style import save

        curves = {rule: (packed.demand, packed.curve) for rule, packed in found.items()}
        drawn = allocation_curves(curves, title=f"GPUs allocated to the pods of {pods.name}", seeds=seeds)
        paths = save(*drawn, out, "allocation")
    if as_json:
        print_json({"rules": [asdict(packed) for packed in found.values()], "figures": [str(path) for path in paths]})
        return
    from simsched.cli.tables import print_table
    from simsched.report.tables import TextTable, estimate_text

    rows = tuple(
        (
            rule,
            estimate_text(packed.allocated, 100),
            estimate_text(packed.unusable, 100),
            estimate_text(packed.refused),
        )
        for rule, packed in found.items()
    )
    columns = ("rule", "GPUs allocated (%)", "of the free, unusable (%)", "pods refused")
    notes = (
        f"Pods came until they had asked for {demand:g} % of the GPUs, and none left; {seeds} orders of the pods.",
        "Unusable: what a pod of the list, drawn at random, could not use of the GPUs that stayed free.",
    )
    print_table(TextTable("Packing", columns, rows, notes, 0))
    for path in paths:
        click.echo(f"{path}")
