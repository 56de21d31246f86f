"""Experiments that replay a log: written as a reusable file, run through the store, and read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simsched.documents import draft_of, yaml_lines, yaml_text
from simsched.errors import input_error
from simsched.experiment import ExperimentSpec
from simsched.experiment.running import prepare_grid, run_grid
from simsched.operators.changes import Changed, resolve
from simsched.operators.log_input import Groups, OperatorLog, largest_type
from simsched.operators.withdrawals import PROCESS, withdrawals_text
from simsched.results import Run, read_run
from simsched.words import counted
from simsched.workload import Trace, write_trace_csv
from simsched.workload.readers import ClusterLog

#: Receives what is being tried.
Progress = Callable[[str], None]
LOG_FILE, _WITHDRAWN = "log.csv.gz", "withdrawn.csv"


@dataclass(frozen=True)
class ReplayPlan:
    """A log, a cluster and a policy, and the output folder.

    `changes` are `key=value` overrides of its experiment, and `changed` what they and changes of objects change. By
    default jobs are killed at their time limits, and starts are free, as logged durations include them. Jobs of more
    than `max_gpus` are left out (None: more than the largest GPU type has). It is unknown whether the replay of an
    `unrecorded` log matches the cluster; answers are given with this caveat. `topology` has the levels of the nodes.
    Jobs cancelled before they started wait too if they are `cancelled`.
    """

    log: OperatorLog
    groups: Groups
    policy: str
    folder: Path
    params: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[str] = ()
    changed: Sequence[Changed] = ()
    seeds: int = 1
    node_price_per_h: float | None = None
    workers: int = 1
    max_gpus: int | None = None
    unrecorded: bool = False
    topology: Sequence[Mapping[str, Any]] = ()
    cancelled: bool = False

    @property
    def recorded(self) -> ClusterLog:
        """The log with its recorded waits; raises `InputError` for a trace without waits."""
        if self.log.log is None:
            remedy = "give the scheduler's log: `sacct -P` or a table"
            raise input_error(self.log.trace.name, "records no waits", remedy)
        return self.log.log


def counted_from(plan: ReplayPlan, log: OperatorLog) -> ReplayPlan:
    """Return the plan with another trace of its log; the times of reservations count from its second 0."""
    limits = dict(plan.params.get("limits", {}))
    old, new = plan.log.trace.origin, log.trace.origin
    if limits.get("reservations") and old is not None and new is not None:
        later_s = int((old - new).total_seconds())
        moved = {"start_s": later_s, "end_s": later_s}
        limits["reservations"] = [
            {key: value + moved[key] if key in moved else value for key, value in dict(one).items()}
            for one in limits["reservations"]
        ]
    return replace(plan, log=log, params={**plan.params, "limits": limits} if limits else plan.params)


def run_replay(
    plan: ReplayPlan,
    name: str,
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    traces: Mapping[str, Trace] | None = None,
    progress: Progress | None = None,
    in_process: bool = False,
) -> Run:
    """Replay the log, or several `traces` by the name of their file, each a point of a sweep; reuses earlier runs.

    Short replays of what ships may run `in_process`, which saves the start of another. Raises `InputError` for bad
    input and if the policy fails.
    """
    if progress is not None:
        progress(f"{name}: replaying {counted(len(plan.log.trace), 'job')}")
    file = write_replay(plan, name, sweep=sweep, traces=traces)
    grid = prepare_grid(yaml_lines.load(file), plan.changes, name=name)
    result = run_grid(grid, plan.folder, plan.workers, in_process=in_process)
    if result.failures:
        raise input_error(
            result.failures[0].name, result.failures[0].message, _beyond_limits(grid.experiment.spec, plan.log.trace)
        )
    return read_run(result.folder)


def write_replay(
    plan: ReplayPlan,
    name: str,
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    traces: Mapping[str, Trace] | None = None,
    plots: bool = False,
) -> Path:
    """Write the jobs of a plan, or several `traces`, and the experiment that replays them; return its file."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    for file_name, trace in (traces or {LOG_FILE: plan.log.trace}).items():
        (plan.folder / file_name).parent.mkdir(exist_ok=True)
        write_trace_csv(trace, plan.folder / file_name)
    if plan.log.withdrawn:
        (plan.folder / _WITHDRAWN).write_text(withdrawals_text(plan.log.withdrawn), encoding="utf-8")
    file = plan.folder / f"{name}.yaml"
    file.write_text(_experiment(plan, name, sweep=sweep, traces=traces, plots=plots), encoding="utf-8")
    return file


def changed_plan(plan: ReplayPlan, changes: Sequence[str], *, option: str = "--change") -> ReplayPlan:
    """Return the plan with an operator's changes on top of its own; raises `InputError` as `resolve` does."""
    if not changes:
        return plan
    file = plan.folder / "changes.yaml"
    document = draft_of(yaml_lines.parse(_experiment(plan, "changes"), str(file)), plan.changes)
    overrides, changed = resolve(replace(document.document, data=document.data), changes, option=option)
    return replace(plan, changes=(*plan.changes, *overrides), changed=(*plan.changed, *changed))


def _experiment(
    plan: ReplayPlan,
    name: str,
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    traces: Mapping[str, Trace] | None = None,
    plots: bool = False,
) -> str:
    """Return the text of the experiment that replays a plan."""
    if traces:
        sweep = {"workload.path": [str((plan.folder / one).resolve()) for one in traces], **(sweep or {})}
    cluster: dict[str, Any] = {"groups": [dict(one) for one in plan.groups]}
    if plan.topology:
        cluster["topology"] = [dict(one) for one in plan.topology]
    if plan.node_price_per_h is not None:
        cluster["node_price_per_h"] = plan.node_price_per_h
    experiment = {
        "name": name,
        "description": f"{plan.log.trace.name} under {plan.policy}",
        "cluster": cluster,
        "workload": {
            "path": next(iter(traces or (LOG_FILE,))),
            "recipe": "replay",
            "max_gpus": plan.max_gpus or largest_type(plan.groups),
        },
        "engine": {"restart_delay_s": 0, "kill_at_time_limit": True},
        "policies": [{"name": plan.policy, "params": dict(plan.params)}],
        **({"processes": [{"use": PROCESS, "params": {"path": _WITHDRAWN}}]} if plan.log.withdrawn else {}),
        "seeds": plan.seeds,
        **({"sweep": {key: list(values) for key, values in sweep.items()}} if sweep else {}),
        "report": {"plots": plots},
    }
    return yaml_text(experiment)


def _beyond_limits(spec: ExperimentSpec, trace: Trace) -> str:
    """List the tenants with jobs beyond their GPU limit, empty if there are none."""
    table, said = trace.table, []
    for name, tenant in sorted(spec.tenants.items()):
        most = tenant.build().max_gpus
        jobs = 0 if most is None else int(((table["tenant"] == name) & (table["num_gpus"] > most)).sum())
        if jobs:
            said.append(f"{jobs} jobs of tenant '{name}' ask for more than its max_gpus of {most} and can never start")
    return "; ".join(said) + ": raise it, or leave out large jobs with -o workload.max_gpus=..." if said else ""
