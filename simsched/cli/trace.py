"""`simsched trace` and `simsched workload`: inspect, convert and generate traces, make and describe workloads."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.new import force_option, refuse_to_overwrite
from simsched.cli.output import json_option, print_json, say_figures, table, write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simsched.model import JobSpec
    from simsched.workload import Trace

_MOST_TENANTS = 8
_VALUE_WIDTH = 76


@click.group()
def trace() -> None:
    """Inspect, convert and generate cluster traces."""


format_option = click.option(
    "--format", "layout", default="auto", show_default=True, metavar="NAME",
    help="Layout of the file. [default: detected]",
)  # fmt: skip


@trace.command()
@click.argument("source", metavar="TRACE")
@format_option
@click.option("--out", metavar="DIR", default="figures", show_default=True, help="Folder for the figure.")
@click.option(
    "--cluster", metavar="FILE", type=click.Path(path_type=Path),
    help="Compare with these nodes: `scontrol show node`, `sinfo -N`, YAML, or a published list of nodes (.csv).",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Reject a log with invalid jobs.")
@click.option("--no-plots", is_flag=True, help="Do not draw figures.")
@json_option
def info(source: str, layout: str, out: str, cluster: Path | None, strict: bool, no_plots: bool, as_json: bool) -> None:
    """Print statistics of a trace and draw a figure of it.

    TRACE is a file, a folder of CSV files, or the name of a shipped trace.
    """
    from simsched.operators import nodes_of
    from simsched.workload import demand_on, trace_statistics

    found = _read(source, layout)
    if strict:
        _refuse(found)
    statistics = trace_statistics(found)
    demand = None if cluster is None else demand_on(found, nodes_of(cluster))
    paths = [] if no_plots else _draw(found, Path(out))
    if as_json:
        print_json({**statistics, **({"demand": demand} if demand else {}), "figures": [str(path) for path in paths]})
        return
    _print_statistics(statistics)
    if demand is not None:
        _print_demand(demand)
    say_figures(paths, "Picture")


@trace.command()
@click.argument("source", metavar="TRACE")
@click.argument("target", metavar="OUT.csv|OUT.swf", type=click.Path(path_type=Path))
@format_option
@click.option(
    "--to",
    type=click.Choice(["csv", "swf"]),
    help="Format to write. [default: swf if the name ends with .swf or .swf.gz, else csv]",
)
@click.option(
    "--processors-per-gpu",
    "processors",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Count N processors of the trace as one GPU.",
)
@force_option
def convert(source: str, target: Path, layout: str, to: str | None, processors: int, force: bool) -> None:
    """Convert a trace to a plain trace CSV or to the Standard Workload Format.

    The file is compressed if its name ends with .gz.
    """
    from simsched.workload import in_gpus, swf_jobs, write_swf, write_trace_csv

    refuse_to_overwrite(target, force)
    found = in_gpus(_read(source, layout), processors)
    if to == "swf" or (to is None and target.name.endswith((".swf", ".swf.gz"))):
        write_swf(swf_jobs(found), target, origin=found.origin)
    else:
        write_trace_csv(found, target)
    click.echo(f"{target}: {len(found)} jobs")


@trace.command()
@click.argument("source", metavar="FAULTS.json", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT.csv", type=click.Path(path_type=Path))
def outages(source: Path, target: Path) -> None:
    """Convert a published trace of faults (InfiniteHBD-Trace) to a list of outages, for `failures.outages_path`."""
    from simsched.workload import merged, read_fault_trace, write_outages

    found = merged(read_fault_trace(source))
    write_file(target, write_outages(found))
    click.echo(f"{target}: {len(found)} outages of {len({one.node for one in found})} nodes")


@trace.command()
@click.argument("target", metavar="[OUT.csv]", required=False, type=click.Path(path_type=Path))
@click.option("--out", metavar="OUT.csv", type=click.Path(path_type=Path), help="The file to write.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option("--days", type=click.IntRange(1, 366), default=7, show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), help="End after this many jobs, instead of --days.")
@click.option(
    "--scale", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Factor on load."
)
@click.option("--statuses", type=click.Choice(["pass", "all"]), default="pass", show_default=True)
@force_option
@click.option("--cron/--no-cron", default=True, show_default=True, help="Include Philly's ten-minute job.")
def generate(
    target: Path | None,
    out: Path | None,
    seed: int,
    days: int,
    jobs: int | None,
    scale: float,
    statuses: str,
    cron: bool,
    force: bool,
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


def _read(source: str, layout: str) -> Trace:
    from simsched.api import find_trace

    return find_trace(source, layout)


def _refuse(found: Trace) -> None:
    """Raise `InputError` with every reason for leaving out jobs, except those harmless in a log."""
    from simsched.errors import InputError, Problem
    from simsched.workload.readers import HARMLESS

    reasons = [reason for reason in found.dropped if reason in found.examples and reason not in HARMLESS]
    if reasons:
        said = _reasons({reason: found.dropped[reason] for reason in reasons}, found.examples).split("\n")
        lines = [found.examples[reason][0][0] for reason in reasons]
        raise InputError(*(Problem(found.name, text, line=line) for text, line in zip(said, lines, strict=True)))


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
        jobs = f"{row['jobs']:,} {'job' if row['jobs'] == 1 else 'jobs'}"
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
        jobs = "job" if count == 1 else "jobs"
        lines.append(f"{count:,} {jobs}: {reason} ({named})" if named else f"{count:,} {reason}")
    return "\n".join(lines)


def _counts(values: Mapping[str, int]) -> str:
    shown = [f"{name} {count:,}" for name, count in list(values.items())[:_MOST_TENANTS]]
    more = len(values) - len(shown)
    return ", ".join([*shown, f"and {more} more"] if more > 0 else shown)


options_option = click.option(
    "-o", "--option", "options", multiple=True, metavar="KEY=VALUE",
    help="A key of an experiment's 'workload', e.g. -o jobs=80, or of another part, e.g. -o applications.path=DIR.",
)  # fmt: skip


@click.group()
def workload() -> None:
    """Make and describe workloads, the job lists that experiments run."""


@workload.command()
@click.argument("target", metavar="OUT.csv", type=click.Path(path_type=Path))
@options_option
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@force_option
def make(target: Path, options: tuple[str, ...], seed: int, force: bool) -> None:
    """Write the jobs that an experiment with these workload options would run."""
    from simsched.workload import write_workload_csv

    refuse_to_overwrite(target, force)
    jobs = _jobs(options, seed)
    write_workload_csv(jobs, target)
    click.echo(f"{target}: {len(jobs)} jobs")


@workload.command()
@click.argument("source", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@options_option
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@json_option
def describe(source: Path | None, options: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Count the jobs of a workload CSV, or of the workload of these options, by request."""
    from simsched.workload import describe as counted

    given = options if source is None else (*options, f"path={source}")
    found = counted(_jobs(given, seed))
    if as_json:
        print_json(found.to_dict("records"))
        return
    rows = [
        (
            row["application"],
            str(row["num_gpus"]),
            str(row["batch_size"] or "-"),
            str(row["jobs"]),
            f"{100 * row['share']:.1f}",
            str(row["first_submit_s"]),
            str(row["last_submit_s"]),
        )
        for row in found.to_dict("records")
    ]
    click.echo(table(("application", "GPUs", "batch size", "jobs", "%", "first submit (s)", "last submit (s)"), rows))
    click.echo(f"{int(found['jobs'].sum())} jobs")


def _jobs(options: tuple[str, ...], seed: int) -> Sequence[JobSpec]:
    from simsched.experiment import CellInputs, check_workload

    spec = check_workload(options)
    return CellInputs().gathered(spec.workload, "", seed, spec).jobs
