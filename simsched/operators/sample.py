"""Sample logs of clusters that follow other rules than their files say, to learn to read a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from simsched.operators.beginning import with_state
from simsched.operators.replays import ReplayPlan, changed_plan, counted_from, run_replay
from simsched.reading import read_text

#: What decides on the order of jobs before anything that the sample's files say.
_RULES: Mapping[str, Sequence[str]] = {
    "small-first": ("policy.priority.size=200000", "policy.priority.favour_small=true"),
    "fair-share": ("policy.priority.fair_share=200000",),
}


def run_again(plan: ReplayPlan, rules: str, log: Path) -> str:
    """Return a log of `sacct` with the starts and ends that its jobs have under other rules, on nodes unknown."""
    begin = with_state(plan.log, plan.recorded, plan.groups)
    cell = run_replay(counted_from(changed_plan(plan, _RULES[rules]), begin.log), rules, in_process=True).cells[0]
    columns = (cell.jobs[name].tolist() for name in ("job_id", "start_time_s", "end_time_s"))
    times = {str(job): seconds for job, *seconds in zip(*columns, strict=True)}
    lines = [line.split("|") for line in read_text(log).splitlines()]
    number, start, end, nodes = (lines[0].index(name) for name in ("JobID", "Start", "End", "NodeList"))
    for line in lines[1:]:
        if line[number] in times and line[start] != "Unknown":
            moments = (datetime.fromtimestamp(begin.zero_s + second, UTC) for second in times[line[number]])
            line[start], line[end] = (f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in moments)
            line[nodes] = ""
    return "".join("|".join(line) + "\n" for line in lines)
