"""Options and preparation shared by the operators' commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from simsched.operators import ReplayPlan

log_argument = click.argument("log", metavar="LOG", type=click.Path(path_type=Path))
log_option = click.option("--log", metavar="FILE", type=click.Path(path_type=Path), help="The log.")
_OPTIONS = (
    click.option(
        "--policy", metavar="NAME", help="Original policy. [default: slurm-backfill, or kueue for manifests]"
    ),
    click.option(
        "--cluster", metavar="FILE", type=click.Path(path_type=Path),
        help="`scontrol show node`, `sinfo -N`, or YAML. [default: nodes of 8 GPUs for the log's peak]",
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
    click.option("--time-zone", default="UTC", show_default=True, help="Time zone of timestamps without an offset."),
    click.option("--strict", is_flag=True, help="Reject a log with invalid jobs."),
    click.option("--out", default="results", show_default=True, metavar="DIR", type=click.Path(path_type=Path)),
    click.option("--workers", "-j", type=click.IntRange(min=1), default=1, show_default=True, help="Processes."),
)  # fmt: skip

_MANIFEST_OPTIONS = (
    click.option(
        "--durations", metavar="FILE", type=click.Path(path_type=Path),
        help="Manifests only: a trace with the durations of workloads, by name.",
    ),
    click.option(
        "--duration", default="", metavar="DIST",
        help="Manifests only: durations of workloads without one, as in fixed:3600, exponential:MEAN, uniform:LOW,HIGH "
        "or lognormal:MEDIAN,SIGMA.",
    ),
    click.option(
        "--submit-s", type=click.FloatRange(min=0), metavar="SECONDS",
        help="Manifests only: when workloads without a creation time come.",
    ),
    click.option(
        "--allow", multiple=True, metavar="FIELD",
        help="Manifests only: accept a field that is not modelled, as in Job.spec.managedBy. Repeatable.",
    ),
)  # fmt: skip

_SIMILAR = (
    click.option("--now", metavar="TIME", type=click.DateTime(), help="The moment, UTC. [default: as in the file]"),
    click.option(
        "--durations", multiple=True, metavar="FILE", type=click.Path(path_type=Path),
        help="Kubernetes: a trace or log with the durations of similar jobs, or of these by name. Repeatable.",
    ),
    click.option(
        "--duration", default="", metavar="DIST", help="Kubernetes: durations of jobs like no other: fixed:3600, ..."
    ),
    click.option("--seed", type=int, default=1, show_default=True),
)  # fmt: skip


def similar_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how long the workloads of a cluster run."""
    for option in reversed(_SIMILAR):
        command = option(command)
    return command


def manifest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that supplement manifests."""
    for option in reversed(_MANIFEST_OPTIONS):
        command = option(command)
    return command


def run_manifest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that supplement manifests to a command that takes experiments."""
    said = "Manifests only: the nodes, if they have none."
    nodes = click.option("--cluster", metavar="FILE", type=click.Path(path_type=Path), help=said)
    return nodes(manifest_options(command))


def operator_options(log: Callable[..., Any] = log_argument) -> Callable[..., Any]:
    """Add the log (an argument by default) and the shared options to a command."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed((log, *_OPTIONS)):
            command = option(command)
        return command

    return add


def spooled(path: Path, out: Path) -> Path:
    """Return a path unchanged; for `-`, write standard input to a file below `out` and return its path."""
    if str(path) != "-":
        return path
    text = sys.stdin.read()
    out.mkdir(parents=True, exist_ok=True)
    file = out / ("stdin.json" if text.lstrip()[:1] in ("{", "[") else "stdin.yaml")
    file.write_text(text, encoding="utf-8")
    return file


def takes_manifests(path: Path) -> bool:
    """Return whether a path names Kubernetes manifests."""
    from simsched.manifests import is_manifest

    return path.exists() and is_manifest(path)


def manifest_keys(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options for manifests from a command's options."""
    return {name: options.pop(name) for name in ("durations", "duration", "submit_s", "allow")}


def refuse_manifest_options(path: object, given: Mapping[str, Any]) -> None:
    """Raise `InputError` for options of manifests if there are none."""
    from simsched.errors import input_error

    used = [name for name, value in given.items() if value]
    if used:
        message = f"--{used[0].replace('_', '-')} is for manifests, but this has none"
        raise input_error(path, message, "leave it out, or name a folder of manifests")


def make_manifest_plan(
    path: Path, said: Mapping[str, Any], out: Path, *, name: str = "", apply: Sequence[str] = (), **more: Any
) -> ReplayPlan:
    """Read manifests, report on stderr what was read and left out, and return the plan; `said` are their options."""
    from simsched.operators import ManifestOptions, manifest_plan

    folder = out / (name or path.resolve().name.partition(".")[0])
    plan = manifest_plan(path, ManifestOptions(**said), folder, apply=apply, **more)
    click.echo(plan.log.said, err=True)
    return plan


def experiment_of(given: str, out: Path, policies: Sequence[str] = (), **options: Any) -> str:
    """Return an experiment unchanged; for manifests, write one with a policy (default: Kueue) to `out`."""
    path = spooled(Path(given), out)
    if given != "-" and not takes_manifests(path):
        refuse_manifest_options(given, options)
        return given
    from simsched.errors import input_error
    from simsched.operators import write_replay

    if len(policies) > 1:
        raise input_error("--policy", "manifests are run under one policy", "name one, or write an experiment")
    name, policy = path.resolve().name.partition(".")[0], next(iter(policies), "kueue")
    plan = make_manifest_plan(path, options, out, name=f"{name}.input", reasons=True, policy=policy)
    return str(write_replay(plan, name, plots=True))


def answer_plans(
    options: dict[str, Any], changes: Sequence[str] = (), *, grows: bool = False, **more: Any
) -> tuple[ReplayPlan, ReplayPlan]:
    """Return the plan of an operator's question, and the plan with changes of manifests, if any.

    If it `grows`, quotas of manifests follow the number of nodes.
    """
    from simsched.errors import input_error

    manifests = manifest_keys(options)
    path = options["log"] = spooled(options["log"], options["out"])
    if not takes_manifests(path):
        plan = make_plan(**options, manifests=manifests, **more)
        return plan, plan
    unfit = [f"--{name}" for name in ("conf", "strict") if options[name]]
    unfit += ["--format"] * (options["layout"] != "auto") + ["--time-zone"] * (options["time_zone"] != "UTC")
    if unfit:
        raise input_error(path, f"{unfit[0]} is for logs, but these are manifests", "leave it out")
    said = {**manifests, "cluster": options["cluster"]}
    how = {"policy": options["policy"] or "kueue", "workers": options["workers"], "unrecorded": True, "grows": grows}
    before = _set(make_manifest_plan(path, said, options["out"], **how, **more), options["settings"])
    if not changes:
        return before, before
    after = make_manifest_plan(path, said, options["out"], apply=changes, **how, file="objects-after.json", **more)
    return before, _set(after, options["settings"])


def _set(plan: ReplayPlan, settings: Sequence[str]) -> ReplayPlan:
    """Return the plan with a user's settings, which are not part of the question."""
    from simsched.operators import changed_plan

    return replace(changed_plan(plan, settings, option="-o"), changed=plan.changed)


def make_plan(
    log: Path,
    policy: str | None,
    cluster: Path | None,
    settings: tuple[str, ...],
    layout: str,
    time_zone: str,
    strict: bool,
    out: Path,
    workers: int,
    conf: tuple[Path, ...] = (),
    manifests: Mapping[str, Any] | None = None,
    **more: Any,
) -> ReplayPlan:
    """Read log and cluster, report on stderr what was read and left out, and return the plan."""
    from simsched.errors import input_error
    from simsched.operators import ReplayPlan
    from simsched.operators.log_input import (
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

    refuse_manifest_options(log, manifests or {})
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
            raise input_error("--cluster", "this log does not record the size of the cluster", "name its description")
        groups = inferred_groups(found.log)
    found, groups = fitted_to(found, groups, nodes=described)
    params, unused = policy_settings(conf, found, described, time_zone=time_zone)
    click.echo("\n".join(filter(None, (found.said, unused))), err=True)
    if guessed:
        click.echo(f"cluster: {groups[0]['nodes']} nodes of 8 GPUs, for the log's peak", err=True)
    folder = out / Path(log).name.split(".")[0]
    plan = ReplayPlan(found, groups, policy or "slurm-backfill", folder, params=params, workers=workers, **more)
    return _set(plan, settings)
