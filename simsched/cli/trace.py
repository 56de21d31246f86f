"""`simsched trace` and `simsched workload`: inspect, convert and generate traces, make and describe workloads."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from simsched.cli.new import refuse_to_overwrite
from simsched.cli.options import ABOVE_ZERO, COUNT, FORCE, JSON, SEED, arg, command, figures, opt
from simsched.cli.output import print_json, say_figures, table, write_file
from simsched.errors import InputError, Problem
from simsched.words import counted

if TYPE_CHECKING:
    from simsched.model import JobSpec
    from simsched.workload import Trace

_MOST_TENANTS = 8
_VALUE_WIDTH = 76
_SOURCE = arg("TRACE")
_FORMAT = opt("Layout of the file. [default: detected]", "--format", metavar="NAME", default="auto")


@click.group()
def trace() -> None:
    """Inspect, convert and generate cluster traces."""


@command(trace)
def info(
    source: str = _SOURCE,
    *,
    layout: str = _FORMAT,
    out: Path = figures("figures"),
    cluster: Path | None = opt(
        "Compare with these nodes: `scontrol show node`, `sinfo -N`, YAML, or a published list of nodes (.csv)."
    ),
    strict: bool = opt("Reject a log with invalid jobs."),
    no_plots: bool = opt("Do not draw figures."),
    as_json: bool = JSON,
) -> None:
    """Print statistics of a trace and draw a figure of it.

    TRACE is a file, a folder of CSV files, or the name of a shipped trace.
    """
    from simsched.api import find_trace
    from simsched.operators import nodes_of
    from simsched.workload import demand_on, trace_statistics

    found = find_trace(source, layout)
    if strict:
        _refuse(found)
    statistics = trace_statistics(found)
    demand = None if cluster is None else demand_on(found, nodes_of(cluster))
    paths = [] if no_plots else _draw(found, out)
    if as_json:
        print_json({**statistics, **({"demand": demand} if demand else {}), "figures": [str(path) for path in paths]})
        return
    _print_statistics(statistics)
    if demand is not None:
        _print_demand(demand)
    say_figures(paths, "Picture")


@command(trace)
def convert(
    source: str = _SOURCE,
    target: Path = arg("OUT.csv|OUT.swf"),
    *,
    layout: str = _FORMAT,
    to: Literal["csv", "swf"] | None = opt(
        "Format to write. [default: swf if the name ends with .swf or .swf.gz, else csv]"
    ),
    processors_per_gpu: int = opt(
        "Count N processors of the trace as one GPU.", type=COUNT, show_default=False, default=1
    ),
    force: bool = FORCE,
) -> None:
    """Convert a trace to a plain trace CSV or to the Standard Workload Format.

    The file is compressed if its name ends with .gz.
    """
    from simsched.api import find_trace
    from simsched.workload import in_gpus, swf_jobs, write_swf, write_trace_csv

    refuse_to_overwrite(target, force)
    found = in_gpus(find_trace(source, layout), processors_per_gpu)
    if to == "swf" or (to is None and target.name.endswith((".swf", ".swf.gz"))):
        write_swf(swf_jobs(found), target, origin=found.origin)
    else:
        write_trace_csv(found, target)
    click.echo(f"{target}: {len(found)} jobs")


@command(trace)
def outages(source: Path = arg("FAULTS.json"), target: Path = arg("OUT.csv")) -> None:
    """Convert a published trace of faults (InfiniteHBD-Trace) to a list of outages, for `failures.outages_path`."""
    from simsched.workload import merged, read_fault_trace, write_outages

    found = merged(read_fault_trace(source))
    write_file(target, write_outages(found))
    click.echo(f"{target}: {len(found)} outages of {len({one.node for one in found})} nodes")


@command(trace)
def generate(
    target: Path | None = arg("[OUT.csv]"),
    *,
    out: Path | None = opt("The file to write.", metavar="OUT.csv"),
    seed: int = SEED,
    days: int = opt(type=click.IntRange(1, 366), default=7),
    jobs: int | None = opt("End after this many jobs, instead of --days.", type=COUNT),
    scale: float = opt("Factor on load.", type=ABOVE_ZERO, default=1.0),
    statuses: Literal["pass", "all"] = opt(default="pass"),
    force: bool = FORCE,
    cron: bool = opt("Include Philly's ten-minute job.", "--cron/--no-cron", default=True),
) -> None:
    """Generate a trace like Philly's from its published statistics."""
    from simsched.workload import GeneratorOptions, generate_from_seed, write_trace_csv

    path = out or target
    if path is None or (out and target):
        raise click.UsageError("Name one file to write, with --out OUT.csv.")
    refuse_to_overwrite(path, force)
    options = GeneratorOptions(days=days, scale=scale, statuses=statuses, cron=cron, jobs=jobs)
    made = generate_from_seed(options, seed)
    write_trace_csv(made, path)
    click.echo(f"{path}: {len(made)} jobs")


def _refuse(found: Trace) -> None:
    """Raise `InputError` with every reason for leaving out jobs, except those harmless in a log."""
    from simsched.workload.readers import HARMLESS

    reasons = [reason for reason in found.dropped if reason in found.examples and reason not in HARMLESS]
    if reasons:
        texts = _reasons({reason: found.dropped[reason] for reason in reasons}, found.examples).split("\n")
        lines = [found.examples[reason][0][0] for reason in reasons]
        raise InputError(*(Problem(found.name, text, line=line) for text, line in zip(texts, lines, strict=True)))


def _draw(found: Trace, folder: Path) -> list[Path]:
    from simsched.report.figures import save, trace_picture

    name = Path(found.name).name.split(".")[0]
    return save(*trace_picture(found.table, title=f"Trace {name}"), folder, f"trace-{name}")


def _print_statistics(found: Mapping[str, Any]) -> None:
    span_days = found["span_s"] / 86400
    facts = [
        ("format", found["format"]),
        ("jobs", f"{found['jobs']:,}"),
        ("first submission", found["origin"] or "unknown day"),
        ("span", f"{span_days:.1f} days" if span_days >= 2 else f"{found['span_s'] / 3600:.1f} h"),
        ("GPU time", f"{_hours(found['gpu_hours'])} GPU hours"),
        ("GPUs asked for", f"mean {found['mean_gpus']:.2f}, at most {found['max_gpus']}"),
        ("duration", _spread(found["duration_s"])),
        ("time between arrivals", _arrivals(found["interarrival_s"])),
        ("batches", _named(found["batches"])),
        ("tenants", _counts(found["tenants"])),
        ("users", f"{found['users']:,}" if found["users"] else ""),
        ("status", _counts(found["status"])),
        ("left out", _reasons(found["dropped"], found["examples"])),
        ("adjusted", _reasons(found["adjusted"], found["examples"])),
        ("columns not used", ", ".join(found["unused"])),
    ]
    click.echo(found["name"])
    rows = [(name, _wrapped(value)) for name, value in facts if value]
    click.echo(table(("property", "value"), rows, left=2, folded=True))
    mix = [
        (str(row["num_gpus"]), f"{row['jobs']:,}", f"{100 * row['jobs'] / found['jobs']:.1f}", _hours(row["gpu_hours"]))
        for row in found["gpu_mix"]
    ]
    click.echo()
    click.echo(table(("GPUs", "jobs", "% of jobs", "GPU hours"), mix, left=0))
    classes = [(name, f"{row['jobs']:,}", f"{100 * row['share']:.1f}") for name, row in found["size_classes"].items()]
    click.echo()
    click.echo(table(("GPU-time class", "jobs", "% of jobs"), classes))


def _print_demand(found: Mapping[str, Any]) -> None:
    """Print what a trace demands of each GPU type of a cluster, and the jobs that fit nowhere."""
    head = ("GPU types", "GPUs there", "jobs", "GPU hours", "% asked for in all", "% at once", "% busy")
    rows = [
        [
            row["gpu_types"].replace("|", " or "), f"{row['gpus']:,}", f"{row['jobs']:,}", _hours(row["gpu_hours"]),
            *(
                "none there" if row[name] is None else f"{100 * row[name]:,.0f}"
                for name in ("in_all", "at_once", "busy")
            ),
        ]
        for row in found["types"]
    ]  # fmt: skip
    click.echo("\nGPUs that the jobs ask for, as a share of those there; at once and busy as if no job waited:")
    click.echo(table(head, rows))
    for row in found["never"]:
        jobs = counted(row["jobs"], "job")
        named = ", ".join(row["examples"]) + (", ..." if row["jobs"] > len(row["examples"]) else "")
        click.echo(f"warning: {jobs} can never have run on these nodes: {row['wants']} ({named})", err=True)


def _hours(hours: float) -> str:
    return f"{hours:.2f}" if hours < 9.995 else f"{hours:,.0f}"


def _spread(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_time(value)}" for name, value in values.items())


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _arrivals(values: Mapping[str, float]) -> str:
    """Describe interarrival times; a Poisson process has a coefficient of variation and a dispersion of 1."""
    if not values:
        return ""
    parts = [f"mean {_time(values['mean'])}", f"coefficient of variation {values['cv']:.3g}"]
    parts += [f"{100 * values[f'share_within_{s}_s']:.0f} % within {s} s" for s in (10, 60)]
    return ", ".join([*parts, f"dispersion of hourly counts {values['hourly_idc']:.3g}"])


def _named(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in values.items())


def _wrapped(value: str) -> str:
    return "\n".join(part for line in value.split("\n") for part in textwrap.wrap(line, _VALUE_WIDTH))


def _reasons(counts: Mapping[str, int], examples: Mapping[str, Sequence[tuple[int, str]]]) -> str:
    """List reasons one per line, with counts and first lines."""
    lines = []
    for reason, count in counts.items():
        named = ", ".join(f"line {line}: {job}" for line, job in examples.get(reason, ()))
        lines.append(f"{counted(count, 'job')}: {reason} ({named})" if named else f"{count:,} {reason}")
    return "\n".join(lines)


def _counts(values: Mapping[str, int]) -> str:
    shown = [f"{name} {count:,}" for name, count in list(values.items())[:_MOST_TENANTS]]
    more = len(values) - len(shown)
    return ", ".join([*shown, f"and {more} more"] if more > 0 else shown)


_OPTIONS = opt(
        "A key of an experiment's 'workload', e.g. -o jobs=80, or of another part, e.g. -o applications.path=DIR.",
        "-o", "--option", metavar="KEY=VALUE",
    )  # fmt: skip


@click.group()
def workload() -> None:
    """Make and describe workloads, the job lists that experiments run."""


@command(workload)
def make(
    target: Path = arg("OUT.csv"), *, options: tuple[str, ...] = _OPTIONS, seed: int = SEED, force: bool = FORCE
) -> None:
    """Write the jobs that an experiment with these workload options would run."""
    from simsched.workload import write_workload_csv

    refuse_to_overwrite(target, force)
    jobs = _jobs(options, seed)
    write_workload_csv(jobs, target)
    click.echo(f"{target}: {len(jobs)} jobs")


@command(workload)
def describe(
    source: Path | None = arg("[FILE]"), *, options: tuple[str, ...] = _OPTIONS, seed: int = SEED, as_json: bool = JSON
) -> None:
    """Count the jobs of a workload CSV, or of the workload of these options, by request."""
    from simsched.workload import describe as counted_by_request

    requests = counted_by_request(_jobs(options if source is None else (*options, f"path={source}"), seed))
    rows = requests.to_dict("records")
    if as_json:
        print_json(rows)
        return
    lines = [
        (row["application"], str(row["num_gpus"]), str(row["batch_size"] or "-"), str(row["jobs"]),
         f"{100 * row['share']:.1f}", str(row["first_submit_s"]), str(row["last_submit_s"]))
        for row in rows
    ]  # fmt: skip
    click.echo(table(("application", "GPUs", "batch size", "jobs", "%", "first submit (s)", "last submit (s)"), lines))
    click.echo(f"{int(requests['jobs'].sum())} jobs")


def _jobs(options: tuple[str, ...], seed: int) -> Sequence[JobSpec]:
    from simsched.experiment import CellInputs, check_workload

    spec = check_workload(options)
    return CellInputs().gathered(spec.workload, "", seed, spec).jobs
