"""Options and preparation shared by the operators' commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.options import COUNT, NOT_NEGATIVE, opt, opt_field
from simsched.errors import input_error

if TYPE_CHECKING:
    from simsched.operators import ReplayPlan

NOW = opt("The moment, UTC. [default: as in the file]", metavar="TIME")
SIMILAR = opt("Kubernetes: a trace or log with the durations of similar jobs, or of these by name. Repeatable.")
USUAL_DURATION = opt("Kubernetes: durations of jobs like no other: fixed:3600, ...", metavar="DIST", default="")
NODE_PRICE = opt("Price of a node per hour.", metavar="DOLLARS", type=NOT_NEGATIVE)
TRUST_ANYWAY = opt("Answer even if the replay does not match the log, with a banner everywhere.")
NO_PAGE = opt("Do not draw a figure or write a page.", "--no-plots")


@dataclass(frozen=True)
class LogOptions:
    """How to read and replay a log."""

    policy: str | None = opt_field(
        None, "Original policy. [default: slurm-backfill, or kueue for manifests]", metavar="NAME"
    )
    cluster: Path | None = opt_field(
        None, "`scontrol show node`, `sinfo -N`, or YAML. [default: nodes of 8 GPUs for the log's peak]"
    )
    settings: tuple[str, ...] = opt_field(
        (), "Change the experiment, e.g. policy.backfill.kind=conservative or tenants.vision.max_gpus=64. Repeatable.",
        "-o", "--set", metavar="KEY=VALUE",
    )  # fmt: skip
    conf: tuple[Path, ...] = opt_field(
        (), "slurm.conf, `scontrol show partition`, `show reservation`, `sacctmgr show qos -P`, `show assoc -P`."
    )
    layout: str = opt_field("auto", "Layout of the log.", "--format", metavar="NAME")
    time_zone: str = opt_field("UTC", "Time zone of timestamps without an offset.")
    strict: bool = opt_field(False, "Reject a log with invalid jobs.")
    out: Path = opt_field(Path("results"), None, metavar="DIR")
    workers: int = opt_field(1, "Processes.", "--workers", "-j", type=COUNT)


@dataclass(frozen=True)
class Manifests:
    """What supplements manifests, as in `ManifestOptions`."""

    durations: Path | None = opt_field(None, "Manifests only: a trace with the durations of workloads, by name.")
    duration: str = opt_field(
        "", "Manifests only: durations of workloads without one, as in fixed:3600, exponential:MEAN, uniform:LOW,HIGH "
        "or lognormal:MEDIAN,SIGMA.", metavar="DIST",
    )  # fmt: skip
    submit_s: float | None = opt_field(
        None, "Manifests only: when workloads without a creation time come.", metavar="SECONDS", type=NOT_NEGATIVE
    )
    allow: tuple[str, ...] = opt_field(
        (),
        "Manifests only: accept a field that is not modelled, as in Job.spec.managedBy. Repeatable.",
        metavar="FIELD",
    )


@dataclass(frozen=True)
class RunManifests(Manifests):
    """What supplements manifests in a command that takes experiments."""

    cluster: Path | None = opt_field(None, "Manifests only: the nodes, if they have none.")


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


def refuse_manifest_options(path: object, given: Mapping[str, Any]) -> None:
    """Raise `InputError` for options of manifests if there are none."""
    used = next((name for name, value in given.items() if value), None)
    if used is not None:
        message = f"--{used.replace('_', '-')} is for manifests, but this has none"
        raise input_error(path, message, "leave it out, or name a folder of manifests")


def make_manifest_plan(
    path: Path, supplements: Mapping[str, Any], out: Path, *, name: str = "", apply: Sequence[str] = (), **more: Any
) -> ReplayPlan:
    """Read manifests with what supplements them, report on stderr what was read and left out, and return the plan."""
    from simsched.operators import ManifestOptions, manifest_plan

    folder = out / (name or path.resolve().name.partition(".")[0])
    plan = manifest_plan(path, ManifestOptions(**supplements), folder, apply=apply, **more)
    click.echo(plan.log.said, err=True)
    return plan


def experiment_of(given: str, out: Path, policies: Sequence[str], manifests: RunManifests) -> str:
    """Return an experiment unchanged; for manifests, write one with a policy (default: Kueue) to `out`."""
    path = spooled(Path(given), out)
    if given != "-" and not takes_manifests(path):
        refuse_manifest_options(given, asdict(manifests))
        return given
    from simsched.operators import write_replay

    if len(policies) > 1:
        raise input_error("--policy", "manifests are run under one policy", "name one, or write an experiment")
    name, policy = path.resolve().name.partition(".")[0], next(iter(policies), "kueue")
    plan = make_manifest_plan(path, asdict(manifests), out, name=f"{name}.input", reasons=True, policy=policy)
    return str(write_replay(plan, name, plots=True))


def answer_plans(
    log: Path, how: LogOptions, manifests: Manifests, changes: Sequence[str] = (), *, grows: bool = False, **more: Any
) -> tuple[ReplayPlan, ReplayPlan]:
    """Return the plan of an operator's question, and the plan with changes of manifests, if any.

    If it `grows`, quotas of manifests follow the number of nodes.
    """
    path = spooled(log, how.out)
    if not takes_manifests(path):
        refuse_manifest_options(path, asdict(manifests))
        plan = make_plan(path, how, **more)
        return plan, plan
    logs = {"conf": how.conf, "strict": how.strict, "format": how.layout != "auto", "time-zone": how.time_zone != "UTC"}
    unfit = next((name for name, given in logs.items() if given), None)
    if unfit is not None:
        raise input_error(path, f"--{unfit} is for logs, but these are manifests", "leave it out")

    def plan_of(**changed: Any) -> ReplayPlan:
        plan = make_manifest_plan(
            path, {**asdict(manifests), "cluster": how.cluster}, how.out, policy=how.policy or "kueue",
            workers=how.workers, unrecorded=True, grows=grows, **changed, **more,
        )  # fmt: skip
        return _set(plan, how.settings)

    before = plan_of()
    return before, plan_of(apply=changes, file="objects-after.json") if changes else before


def _set(plan: ReplayPlan, settings: Sequence[str]) -> ReplayPlan:
    """Return the plan with a user's settings, which are not part of the question."""
    from simsched.operators import changed_plan

    return replace(changed_plan(plan, settings, option="-o"), changed=plan.changed)


def make_plan(path: Path, how: LogOptions, **more: Any) -> ReplayPlan:
    """Read log and cluster, report on stderr what was read and left out, and return the plan."""
    from simsched.operators import ReplayPlan, log_input

    groups = None if how.cluster is None else log_input.cluster_groups(how.cluster)
    described = None if how.cluster is None else log_input.slurm_nodes(how.cluster)
    nodes = () if described is None else described.nodes
    log = log_input.read_operator_log(
        path, layout=how.layout, time_zone=how.time_zone, strict=how.strict,
        gpus=0 if groups is None else log_input.largest_type(groups),
        nodes=frozenset(one.name for one in nodes), with_gpus=frozenset(one.name for one in nodes if one.gpus),
    )  # fmt: skip
    if described is not None and log.log is not None:
        described = log_input.with_partitions(described, log.log)
        groups = log_input.groups_of(described)
    guessed = groups is None
    if groups is None:
        if log.log is None:
            raise input_error("--cluster", "this log does not record the size of the cluster", "name its description")
        groups = log_input.inferred_groups(log.log)
    log, groups = log_input.fitted_to(log, groups, nodes=described)
    params, unused = log_input.policy_settings(how.conf, log, described, time_zone=how.time_zone)
    click.echo("\n".join(filter(None, (log.said, unused))), err=True)
    if guessed:
        click.echo(f"cluster: {groups[0]['nodes']} nodes of 8 GPUs, for the log's peak", err=True)
    folder = how.out / path.name.split(".")[0]
    policy = how.policy or "slurm-backfill"
    return _set(ReplayPlan(log, groups, policy, folder, params=params, workers=how.workers, **more), how.settings)
