"""Options and preparation shared by the operators' commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from simsched.operators import ReplayPlan

log_argument = click.argument("log", metavar="LOG", type=click.Path(path_type=Path))
log_option = click.option("--log", required=True, metavar="FILE", type=click.Path(path_type=Path), help="The log.")
_OPTIONS = (
    click.option("--policy", default="slurm-backfill", show_default=True, metavar="NAME", help="Policy in force."),
    click.option(
        "--cluster", metavar="FILE", type=click.Path(path_type=Path),
        help="`scontrol show node`, `sinfo -N`, or YAML. [default: nodes of 8 GPUs for the log's busiest moment]",
    ),
    click.option(
        "-o", "--set", "settings", multiple=True, metavar="KEY=VALUE",
        help="Change the experiment, e.g. policy.backfill.kind=conservative or tenants.vision.max_gpus=64. Repeatable.",
    ),
    click.option(
        "--conf", "conf", multiple=True, metavar="FILE", type=click.Path(path_type=Path),
        help="slurm.conf, `scontrol show partition`, `show reservation`, `sacctmgr show qos -P`, `show assoc -P`.",
    ),
    click.option("--format", "layout", default="auto", show_default=True, metavar="NAME", help="Layout of the log."),
    click.option("--time-zone", default="UTC", show_default=True, help="Of timestamps without an offset."),
    click.option("--strict", is_flag=True, help="Refuse a log with jobs that make no sense."),
    click.option("--out", default="results", show_default=True, metavar="DIR", type=click.Path(path_type=Path)),
    click.option("--workers", "-j", type=click.IntRange(min=1), default=1, show_default=True, help="Processes."),
)  # fmt: skip

_MANIFEST_OPTIONS = (
    click.option(
        "--durations", metavar="FILE", type=click.Path(path_type=Path),
        help="Manifests only: a trace that says how long workloads run, by name.",
    ),
    click.option(
        "--duration", default="", metavar="DIST",
        help="Manifests only: seconds of workloads that say none, as in fixed:3600, exponential:MEAN, uniform:LOW,HIGH "
        "or lognormal:MEDIAN,SIGMA.",
    ),
    click.option(
        "--submit-s", type=click.FloatRange(min=0), metavar="SECONDS",
        help="Manifests only: when workloads come that have no time of creation.",
    ),
    click.option(
        "--allow", multiple=True, metavar="FIELD",
        help="Manifests only: let a field pass that is not modelled, as in Job.spec.managedBy. Repeatable.",
    ),
)  # fmt: skip


def manifest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what a user says besides manifests."""
    for option in reversed(_MANIFEST_OPTIONS):
        command = option(command)
    return command


def operator_options(log: Callable[..., Any] = log_argument) -> Callable[..., Any]:
    """Add the log, an argument unless said otherwise, and the shared options to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed((log, *_OPTIONS, *_MANIFEST_OPTIONS)):
            command = option(command)
        return command

    return add


def make_plan(
    log: Path,
    policy: str,
    cluster: Path | None,
    settings: tuple[str, ...],
    layout: str,
    time_zone: str,
    strict: bool,
    out: Path,
    workers: int,
    conf: tuple[Path, ...] = (),
    **more: Any,
) -> ReplayPlan:
    """Read log and cluster, report on stderr what was read and left out, and return the plan."""
    from simsched.errors import input_error
    from simsched.operators import (
        ReplayPlan,
        cluster_groups,
        fitted_to,
        groups_of,
        inferred_groups,
        largest_type,
        policy_settings,
        read_operator_log,
        slurm_nodes,
        with_partitions,
    )

    groups = None if cluster is None else cluster_groups(cluster)
    gpus = 0 if groups is None else largest_type(groups)
    described = None if cluster is None else slurm_nodes(cluster)
    nodes = () if described is None else described.nodes
    names, able = frozenset(one.name for one in nodes), frozenset(one.name for one in nodes if one.gpus)
    found = read_operator_log(
        log, layout=layout, time_zone=time_zone, gpus=gpus, nodes=names, with_gpus=able, strict=strict
    )
    if described is not None and found.log is not None:
        described = with_partitions(described, found.log)
        groups = groups_of(described)
    guessed = groups is None
    if groups is None:
        if found.log is None:
            raise input_error("--cluster", "this log does not say how large the cluster was", "name its description")
        groups = inferred_groups(found.log)
    found, groups = fitted_to(found, groups, nodes=described)
    params, unused = policy_settings(conf, found, described, time_zone=time_zone)
    click.echo("\n".join(filter(None, (found.said, unused))), err=True)
    if guessed:
        click.echo(f"cluster: {groups[0]['nodes']} nodes of 8 GPUs, for the log's busiest moment", err=True)
    folder = out / Path(log).name.split(".")[0]
    return ReplayPlan(found, groups, policy, folder, params=params, changes=settings, workers=workers, **more)
