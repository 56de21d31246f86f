"""`simsched application`: fit applications to measurements, show them, start new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from simsched.cli.application_types import compared_types, draw_types, pairs, print_ratios, show_rates
from simsched.cli.output import json_option, print_json, say_figures, table, write_file
from simsched.cli.plans import fit_plans, plans, predict_plans
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    from simsched.applications import ApplicationCatalogue
    from simsched.applications.calibration import Truth
    from simsched.model import Application
    from simsched.model.tabulated import TabulatedModel
    from simsched.report.figures import Drawn

_GPUS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_GPUS_PER_NODE = 4
_DRAWN_GPUS = (1, 2, 4, 8, 16, 32, 64)
_MOST_SIZES = 6


class _Nodes(NamedTuple):
    gpu_type: str
    gpus_per_node: int


@click.group()
def application() -> None:
    """Fit, show and create applications, the models of jobs' physics."""


for command in (pairs, fit_plans, predict_plans, plans):
    application.add_command(command)

measured_options = (
    click.option("--gpu-type", metavar="TYPE", default="t4", show_default=True, help="GPUs measured."),
    click.option("--bounds", metavar="NAME", help="Published bounds of the applications, e.g. pollux-osdi21."),
)


def measured_on(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that supplement a folder of measurements."""
    for option in reversed(measured_options):
        command = option(command)
    return command


@application.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@measured_on
@click.option(
    "--out", metavar="DIR", default="applications", show_default=True, type=click.Path(path_type=Path),
    help="Folder for the application files.",
)  # fmt: skip
@json_option
def fit(folder: Path, gpu_type: str, bounds: str | None, out: Path, as_json: bool) -> None:
    """Fit applications to a folder of measurements, report the errors and write a YAML file for each."""
    from simsched.applications.calibration import fit_folder, write_documents

    results = fit_folder(folder, gpu_type=gpu_type, bounds=bounds)
    names = [result.application.name for result in results]
    paths = write_documents(results, out)
    if as_json:
        from dataclasses import asdict

        print_json({name: asdict(result.errors) for name, result in zip(names, results, strict=True)})
        return
    rows = [
        (
            name,
            str(result.errors.points),
            *_percent(
                result.errors.step_mean,
                result.errors.step_worst,
                result.errors.seven_parameter_mean,
                result.errors.efficiency_mean,
                result.errors.efficiency_worst,
            ),
        )
        for name, result in zip(names, results, strict=True)
    ]
    headers = ("application", "points", "step time", "at worst", "seven params", "efficiency", "at worst")
    click.echo(table(headers, rows))
    click.echo("Errors in per cent: step times relative, efficiency absolute; 'seven params' is Pollux's own form.")
    for path in paths:
        click.echo(path)


@application.command()
@click.argument("name")
@click.option("--path", metavar="DIR", help="Folder of applications or measurements, instead of the shipped ones.")
@click.option("--measured", metavar="DIR", help="Folder of measurements to draw with the model, as circles.")
@click.option("--gpu-type", metavar="TYPE", help="One of its GPU types. [default: all, side by side]")
@click.option("--extra-types", type=click.Choice(["sia"]), help="Add published types, as in applications.extra_types.")
@click.option("--gpus-per-node", metavar="N", default=_GPUS_PER_NODE, show_default=True, type=click.IntRange(1, 1024))
@click.option("--out", metavar="DIR", default="figures", show_default=True, type=click.Path(path_type=Path))
@click.option("--no-plots", is_flag=True, help="Draw no figures.")
def show(
    name: str,
    path: str | None,
    measured: str | None,
    gpu_type: str | None,
    extra_types: Literal["sia"] | None,
    gpus_per_node: int,
    out: Path,
    no_plots: bool,
) -> None:
    """Print an application's model; draw its throughput over GPUs and batches and its efficiency over training.

    If it has several GPU types, they are shown side by side. For a table of rates as published with Gavel (--path
    FILE.json), the command shows the steps per second.
    """
    rates = _rates_of(name, path)
    if rates is not None:
        show_rates(rates, gpu_type, None if no_plots else out)
        return
    found = _find(name, None if path is None else Path(path), gpu_type, extra_types)
    beside = None if measured is None else _find(name, Path(measured), gpu_type)
    nodes = _Nodes(gpu_type or (found.gpu_types or ("",))[0], gpus_per_node)
    _print_facts(found)
    sizes = _some_sizes(found.batch_sizes)
    types = compared_types(found, gpu_type)
    for kind in types:
        click.echo()
        _print_throughput(found, sizes, nodes._replace(gpu_type=kind))
    if len(types) > 1:
        print_ratios(_on_types(found, sizes, types, gpus_per_node), types)
    if no_plots:
        return
    from simsched.report.figures import save

    figures = _figures(found, beside, sizes, nodes)
    if len(types) > 1:
        data = _on_types(found, sizes, types, gpus_per_node, _DRAWN_GPUS)
        figures["types"] = draw_types(data, f"{found.name}: throughput by GPU type")
    for kind, drawn in figures.items():
        say_figures(save(*drawn, out, f"{name}-{kind}"))


@application.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@measured_on
@click.option("--path", metavar="DIR", type=click.Path(path_type=Path), help="Fitted applications. [default: shipped]")
@click.option("--out", metavar="DIR", default="figures", show_default=True, type=click.Path(path_type=Path))
@click.option("--no-plots", is_flag=True, help="Draw no figures.")
@json_option
def compare(
    folder: Path, gpu_type: str, bounds: str | None, path: Path | None, out: Path, no_plots: bool, as_json: bool
) -> None:
    """Compare fitted applications with a folder of measurements by kind of placement, and draw both."""
    from dataclasses import asdict

    from simsched.applications.calibration import compare_folder

    found = compare_folder(folder, path, gpu_type=gpu_type, bounds=bounds)
    figures = [] if no_plots else _draw_sheets(_load(folder, gpu_type, bounds), _load(path), out)
    if as_json:
        print_json({"applications": [asdict(one) for one in found], "figures": [str(file) for file in figures]})
        return
    _print_truth(found)
    say_figures(figures)


def _print_truth(found: Sequence[Truth]) -> None:
    from simsched.applications.calibration import KINDS

    rows = [
        (one.name, form, *_percent(errors.mean, errors.worst), *(_share(errors.kinds.get(kind)) for kind in KINDS))
        for one in found
        for form, errors in (("its own", one.shipped), ("seven parameters", one.seven))
    ]
    click.echo("Step times: mean absolute error in per cent, over all placements and by kind of placement")
    click.echo(table(("application", "form", "mean", "at worst", *KINDS), rows, left=2))
    click.echo("\nStatistical efficiency over training, in percentage points; time of a whole training in per cent")
    efficiency = [
        (one.name, *_percent(one.efficiency_mean, one.efficiency_worst), f"{100 * one.training_worst:+.1f}")
        for one in found
    ]
    click.echo(table(("application", "mean error", "at worst", "training time, worst"), efficiency))


def _draw_sheets(measured: ApplicationCatalogue, fitted: ApplicationCatalogue, out: Path) -> list[Path]:
    """Plot measured and modelled throughput and efficiency of every application."""
    import pandas as pd

    from simsched.report.figures import efficiency_sheet, save, throughput_sheet

    sources = {"measured": measured, "model": fitted}
    throughput, efficiency = [], []
    for name, one in measured.applications.items():
        sizes, nodes = _some_sizes(one.batch_sizes), _Nodes((one.gpu_types or ("",))[0], _GPUS_PER_NODE)
        for source, known in sources.items():
            model, what = known.applications[name], {"application": name, "source": source}
            throughput += [what | row for row in _throughputs(model, sizes, nodes, _DRAWN_GPUS)]
            efficiency += [what | row for row in _efficiencies(model, sizes, nodes.gpu_type)]
    sheets = {
        "throughput-fit": throughput_sheet(pd.DataFrame(throughput)),
        "efficiency-fit": efficiency_sheet(pd.DataFrame(efficiency)),
    }
    return [path for name, drawn in sheets.items() for path in save(*drawn, out, name)]


def _share(share: float | None) -> str:
    return "-" if share is None else _percent(share)[0]


def _load(path: Path | None, gpu_type: str = "t4", bounds: str | None = None) -> ApplicationCatalogue:
    from simsched.applications import ApplicationCatalogue

    return ApplicationCatalogue.load(path, gpu_type=gpu_type, bounds=bounds)


def _find(name: str, path: Path | None, gpu_type: str | None, extra_types: Literal["sia"] | None = None) -> Application:
    from simsched.applications import ApplicationsOptions, catalogue

    place = None if path is None else str(path)
    measured = "t4" if extra_types or gpu_type is None else gpu_type
    known = catalogue(ApplicationsOptions(place, measured, extra_types=extra_types)).applications
    if name not in known:
        raise input_error(f"application '{name}'", "there is no such application", nearest(name, known))
    found = known[name]
    if gpu_type is not None and found.gpu_types and gpu_type not in found.gpu_types:
        message = f"its speed on '{gpu_type}' is unknown"
        raise input_error(f"application '{name}'", message, nearest(gpu_type, found.gpu_types))
    return found


def _rates_of(name: str, path: str | None) -> TabulatedModel | None:
    """Return the model of a table of rates, None if the path is not such a table."""
    if path is None or Path(path).suffix != ".json":
        return None
    known = _load(Path(path)).tabulated
    if name not in known:
        raise input_error(f"application '{name}'", f"{path} has no rates of it", nearest(name, known))
    return known[name]


@application.command()
@click.argument("name")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="[default: NAME.yaml]")
def init(name: str, out: Path | None) -> None:
    """Write a small, complete application file to start from."""
    from simsched.applications import template

    path = out or Path(f"{name}.yaml")
    if path.exists():
        raise input_error(path, "the file already exists", "name another with --out")
    write_file(path, template(name))
    click.echo(path)


def _percent(*shares: float) -> list[str]:
    return [f"{100 * share:.1f}" for share in shares]


def _some_sizes(sizes: Sequence[int]) -> list[int]:
    if len(sizes) <= _MOST_SIZES:
        return list(sizes)
    step = (len(sizes) - 1) / (_MOST_SIZES - 1)
    return [sizes[round(i * step)] for i in range(_MOST_SIZES)]


def _print_facts(found: Application) -> None:
    limits = found.limits
    facts = [("application", found.name), ("epochs", str(found.epochs))]
    if limits is not None:
        facts += [
            ("batch size", f"{limits.init_batch_size} initially, at most {limits.max_batch_size}"),
            ("batch on one GPU", f"{limits.min_local_bsz} to {limits.max_local_bsz}"),
            ("validated batch sizes", ", ".join(str(size) for size in found.batch_sizes)),
            ("iterations at the initial batch size", f"{found.epoch_end(found.epochs - 1):,.0f}"),
        ]
    if found.max_gpus is not None:
        facts.append(("GPUs at most", str(found.max_gpus)))
    if found.fixed_batch_size is not None:
        facts.append(("batch size is fixed at", str(found.fixed_batch_size)))
    if found.restart_delay_s is not None:
        facts.append(("restart delay", f"{found.restart_delay_s} s"))
    click.echo(table(("property", "value"), facts, left=2))


def _throughputs(
    found: Application, sizes: Sequence[int], nodes: _Nodes, gpu_counts: Sequence[int] = _GPUS
) -> Iterator[dict[str, float]]:
    from simsched.model import Site
    from simsched.model.batch import batch_for_target
    from simsched.model.placement import consolidated_shape

    for size in sizes:
        for gpus in gpu_counts:
            if found.limits is None or size < gpus * found.limits.min_local_bsz or gpus > (found.max_gpus or gpus):
                continue
            site = Site(consolidated_shape(gpus, nodes.gpus_per_node), nodes.gpu_type)
            running = found.run(site, batch_for_target(found.limits, size, gpus), 0)
            yield {"gpus": gpus, "batch_size": size, "throughput": running.throughput}


def _on_types(
    found: Application,
    sizes: Sequence[int],
    types: Sequence[str],
    gpus_per_node: int,
    gpu_counts: Sequence[int] = _GPUS,
) -> list[dict[str, Any]]:
    return [
        {"gpu_type": kind, **row}
        for kind in types
        for row in _throughputs(found, sizes, _Nodes(kind, gpus_per_node), gpu_counts)
    ]


def _print_throughput(found: Application, sizes: Sequence[int], nodes: _Nodes) -> None:
    values = {(row["gpus"], row["batch_size"]): row["throughput"] for row in _throughputs(found, sizes, nodes)}
    gpus = sorted({gpus for gpus, _ in values})
    rows = [
        (str(count), *(f"{values[count, size]:,.1f}" if (count, size) in values else "-" for size in sizes))
        for count in gpus
    ]
    click.echo(
        f"Throughput in examples/s on {nodes.gpu_type}, by GPUs (nodes of {nodes.gpus_per_node}, as few as possible) "
        "and total batch size:"
    )
    click.echo(table(("GPUs", *(f"{size}" for size in sizes)), rows, left=0))


def _figures(found: Application, beside: Application | None, sizes: Sequence[int], nodes: _Nodes) -> dict[str, Drawn]:
    import pandas as pd

    from simsched.report.figures import efficiency_figure, throughput_figure

    both = [found] if beside is None else [found, beside]
    speeds = [pd.DataFrame(list(_throughputs(one, sizes, nodes, _DRAWN_GPUS))) for one in both]
    worth = [pd.DataFrame(list(_efficiencies(one, sizes, nodes.gpu_type))) for one in both]
    return {
        "throughput": throughput_figure(*speeds, title=f"{found.name}: throughput on {nodes.gpu_type.upper()}"),
        "efficiency": efficiency_figure(*worth, title=f"{found.name}: statistical efficiency over training"),
    }


def _efficiencies(found: Application, sizes: Sequence[int], gpu_type: str) -> Iterator[dict[str, Any]]:
    """Compute the efficiency of each batch size and epoch, which does not depend on GPUs."""
    from simsched.model import BatchChoice, Site

    limits = found.limits
    if limits is None:
        return
    for size in sizes:
        local = min(size, limits.max_local_bsz)
        accum = -(-size // local) - 1
        for epoch in range(found.epochs):
            running = found.run(Site((1,), gpu_type), BatchChoice(-(-size // (accum + 1)), accum), epoch)
            yield {"progress": epoch / found.epochs, "batch_size": size, "efficiency": running.efficiency}
