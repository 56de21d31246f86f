"""`simsched application`: fit applications to measurements, show them, start new ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from simsched.cli.new import refuse_to_overwrite
from simsched.cli.options import JSON, NO_PLOTS, arg, command, opt
from simsched.cli.output import print_json, say_figures, table, write_file
from simsched.cli.pairs import pairs
from simsched.cli.plans import fit_plans, plans, predict_plans
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    import pandas as pd

    from simsched.applications import ApplicationCatalogue
    from simsched.applications.calibration import Truth
    from simsched.model import Application
    from simsched.model.tabulated import TabulatedModel
    from simsched.report.figures import Drawn

_GPUS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_GPUS_PER_NODE = 4
_DRAWN_GPUS = (1, 2, 4, 8, 16, 32, 64)
_MOST_SIZES = 6

_MEASUREMENTS = arg("DIR")
_MEASURED_ON = opt("GPUs measured.", "--gpu-type", metavar="TYPE", default="t4")
_BOUNDS = opt("Published bounds of the applications, e.g. pollux-osdi21.", metavar="NAME")
_FIGURES = opt(None, "--out", metavar="DIR", default=Path("figures"))


class _Nodes(NamedTuple):
    gpu_type: str
    gpus_per_node: int


@click.group()
def application() -> None:
    """Fit, show and create applications, the models of jobs' physics."""


for _command in (pairs, fit_plans, predict_plans, plans):
    application.add_command(_command)


@command(application)
def fit(
    folder: Path = _MEASUREMENTS,
    *,
    gpu_type: str = _MEASURED_ON,
    bounds: str | None = _BOUNDS,
    out: Path = opt("Folder for the application files.", metavar="DIR", default=Path("applications")),
    as_json: bool = JSON,
) -> None:
    """Fit applications to a folder of measurements, report the errors and write a YAML file for each."""
    from simsched.applications.calibration import fit_folder, write_documents

    results = fit_folder(folder, gpu_type=gpu_type, bounds=bounds)
    errors = {result.application.name: result.errors for result in results}
    paths = write_documents(results, out)
    if as_json:
        print_json({name: asdict(one) for name, one in errors.items()})
        return
    shares = ("step_mean", "step_worst", "seven_parameter_mean", "efficiency_mean", "efficiency_worst")
    rows = [
        (name, str(one.points), *_percent(*(getattr(one, share) for share in shares))) for name, one in errors.items()
    ]
    headers = ("application", "points", "step time", "at worst", "seven params", "efficiency", "at worst")
    click.echo(table(headers, rows))
    click.echo("Errors in per cent: step times relative, efficiency absolute; 'seven params' is Pollux's own form.")
    for path in paths:
        click.echo(path)


@command(application)
def show(
    name: str = arg(),
    *,
    path: str | None = opt("Folder of applications or measurements, instead of the shipped ones.", metavar="DIR"),
    measured: str | None = opt("Folder of measurements to draw with the model, as circles.", metavar="DIR"),
    gpu_type: str | None = opt("One of its GPU types. [default: all, side by side]", metavar="TYPE"),
    extra_types: Literal["sia"] | None = opt("Add published types, as in applications.extra_types."),
    gpus_per_node: int = opt(type=click.IntRange(1, 1024), default=_GPUS_PER_NODE),
    out: Path = _FIGURES,
    no_plots: bool = NO_PLOTS,
) -> None:
    """Print an application's model; draw its throughput over GPUs and batches and its efficiency over training.

    If it has several GPU types, they are shown side by side. For a table of rates as published with Gavel (--path
    FILE.json), the command shows the steps per second.
    """
    from simsched.report.figures import save, types_figure

    if path is not None and Path(path).suffix == ".json":
        _show_rates(_rates_of(name, Path(path)), gpu_type, None if no_plots else out)
        return
    model = _find(name, path, gpu_type, extra_types)
    beside = None if measured is None else _find(name, measured, gpu_type)
    _print_facts(model)
    sizes = _some_sizes(model.batch_sizes)
    types = [gpu_type] if gpu_type is not None else list(model.gpu_types or ("",))
    speeds = _throughputs(model, sizes, types, gpus_per_node)
    for kind in types:
        click.echo(
            f"\nThroughput in examples/s on {kind}, by GPUs (nodes of {gpus_per_node}, as few as possible) and total "
            "batch size:"
        )
        _print_pivoted(speeds[speeds["gpu_type"] == kind], "gpus", "batch_size", "throughput", ",.1f")
    _print_ratios(speeds, types)
    if no_plots:
        return
    figures = _figures(model, beside, sizes, _Nodes(gpu_type or (model.gpu_types or ("",))[0], gpus_per_node))
    if len(types) > 1:
        drawn = _throughputs(model, sizes, types, gpus_per_node, _DRAWN_GPUS)
        figures["types"] = types_figure(drawn, title=f"{model.name}: throughput by GPU type")
    for kind, figure in figures.items():
        say_figures(save(*figure, out, f"{name}-{kind}"))


@command(application)
def compare(
    folder: Path = _MEASUREMENTS,
    *,
    gpu_type: str = _MEASURED_ON,
    bounds: str | None = _BOUNDS,
    path: Path | None = opt("Fitted applications. [default: shipped]", metavar="DIR"),
    out: Path = _FIGURES,
    no_plots: bool = NO_PLOTS,
    as_json: bool = JSON,
) -> None:
    """Compare fitted applications with a folder of measurements by kind of placement, and draw both."""
    from simsched.applications import ApplicationCatalogue
    from simsched.applications.calibration import compare_folder

    found = compare_folder(folder, path, gpu_type=gpu_type, bounds=bounds)
    figures: list[Path] = []
    if not no_plots:
        measured = ApplicationCatalogue.load(folder, gpu_type=gpu_type, bounds=bounds)
        figures = _draw_sheets({"measured": measured, "model": ApplicationCatalogue.load(path)}, out)
    if as_json:
        print_json({"applications": [asdict(one) for one in found], "figures": [str(file) for file in figures]})
        return
    _print_truth(found)
    say_figures(figures)


@command(application)
def init(
    name: str = arg(),
    *,
    out: Path | None = opt("[default: NAME.yaml]"),
) -> None:
    """Write a small, complete application file to start from."""
    from simsched.applications import template

    path = out or Path(f"{name}.yaml")
    refuse_to_overwrite(path, force=False, remedy="name another with --out")
    write_file(path, template(name))
    click.echo(path)


def _print_truth(found: Sequence[Truth]) -> None:
    from simsched.applications.calibration import KINDS

    rows = [
        (one.name, form, *_percent(errors.mean, errors.worst, *(errors.kinds.get(kind) for kind in KINDS)))
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


def _draw_sheets(sources: dict[str, ApplicationCatalogue], out: Path) -> list[Path]:
    """Plot measured and modelled throughput and efficiency of every application that is measured."""
    import pandas as pd

    from simsched.report.figures import efficiency_sheet, save, throughput_sheet

    throughput, efficiency = [], []
    for name, one in sources["measured"].applications.items():
        sizes, kind = _some_sizes(one.batch_sizes), (one.gpu_types or ("",))[0]
        for source, catalogue in sources.items():
            model, what = catalogue.applications[name], {"application": name, "source": source}
            throughput.append(_throughputs(model, sizes, [kind], _GPUS_PER_NODE, _DRAWN_GPUS).assign(**what))
            efficiency.append(_efficiencies(model, sizes, kind).assign(**what))
    names = ["application", "source"]
    sheets = {
        "throughput-fit": throughput_sheet(pd.concat(throughput)[[*names, "gpus", "batch_size", "throughput"]]),
        "efficiency-fit": efficiency_sheet(pd.concat(efficiency)[[*names, "progress", "batch_size", "efficiency"]]),
    }
    return [path for name, drawn in sheets.items() for path in save(*drawn, out, name)]


def _find(name: str, path: str | None, gpu_type: str | None, extra_types: Literal["sia"] | None = None) -> Application:
    from simsched.applications import ApplicationsOptions, catalogue

    measured = "t4" if extra_types or gpu_type is None else gpu_type
    known = catalogue(ApplicationsOptions(path, measured, extra_types=extra_types)).applications
    if name not in known:
        raise input_error(f"application '{name}'", "there is no such application", nearest(name, known))
    model = known[name]
    if gpu_type is not None and model.gpu_types and gpu_type not in model.gpu_types:
        message = f"its speed on '{gpu_type}' is unknown"
        raise input_error(f"application '{name}'", message, nearest(gpu_type, model.gpu_types))
    return model


def _rates_of(name: str, path: Path) -> TabulatedModel:
    from simsched.applications import ApplicationCatalogue

    known = ApplicationCatalogue.load(path).tabulated
    if name not in known:
        raise input_error(f"application '{name}'", f"{path} has no rates of it", nearest(name, known))
    return known[name]


def _show_rates(model: TabulatedModel, gpu_type: str | None, out: Path | None) -> None:
    """Print a tabulated application's steps per second by type, and plot them into `out` if given."""
    import pandas as pd

    types = sorted(model.rates)
    if gpu_type is not None and gpu_type not in types:
        message = f"there are no rates on '{gpu_type}'"
        raise input_error(f"application '{model.name}'", message, nearest(gpu_type, types))
    types = types if gpu_type is None else [gpu_type]
    rows = [
        (kind, setting.num_gpus, setting.batch_size, rate)
        for kind in types
        for setting, rate in sorted(model.rates[kind].items())
    ]
    data = pd.DataFrame(rows, columns=["gpu_type", "gpus", "batch_size", "throughput"])
    click.echo(f"{model.name}: steps per second")
    _print_pivoted(data[data["throughput"] > 0], ["batch_size", "gpus"], "gpu_type", "throughput", ",.2f")
    _print_ratios(data, types)
    if out is not None:
        from simsched.report.figures import save, types_figure

        drawn = types_figure(data, title=f"{model.name}: rates by GPU type", unit="steps/s")
        say_figures(save(*drawn, out, f"{model.name}-types"))


_HEADERS = {"gpus": "GPUs", "batch_size": "batch size"}


def _print_pivoted(
    data: pd.DataFrame,
    index: str | list[str],
    columns: str,
    values: str,
    form: str,
    how: Literal["mean", "median"] = "mean",
) -> None:
    """Print a table of values, a row for each `index` and a column for each value of `columns`; - where it has none."""
    wide = data.pivot_table(values, index, columns, how)
    names = [_HEADERS[str(name)] for name in wide.index.names]
    rows = [
        (*(str(part or "-") for part in (key if isinstance(key, tuple) else (key,))),
         *("-" if value != value else f"{value:{form}}" for value in row))
        for key, row in zip(wide.index.tolist(), wide.to_numpy().tolist(), strict=True)
    ]  # fmt: skip
    click.echo(table((*names, *map(str, wide.columns)), rows, left=0))


def _print_ratios(data: pd.DataFrame, types: Sequence[str]) -> None:
    """Print each type's speed relative to the first by GPUs, if there are several: the median over batch sizes."""
    if len(types) < 2:
        return
    wide = data.pivot_table("throughput", ["gpus", "batch_size"], "gpu_type")[list(types)]
    ratios = wide.div(wide[types[0]], axis=0).reset_index().melt(["gpus", "batch_size"], value_name="ratio")
    click.echo(f"\nSpeed relative to {types[0]}, median over batch sizes:")
    _print_pivoted(ratios, "gpus", "gpu_type", "ratio", ".2f", "median")


def _percent(*shares: float | None) -> list[str]:
    return ["-" if share is None else f"{100 * share:.1f}" for share in shares]


def _some_sizes(sizes: Sequence[int]) -> list[int]:
    if len(sizes) <= _MOST_SIZES:
        return list(sizes)
    step = (len(sizes) - 1) / (_MOST_SIZES - 1)
    return [sizes[round(i * step)] for i in range(_MOST_SIZES)]


def _print_facts(model: Application) -> None:
    limits = model.limits
    facts = [("application", model.name), ("epochs", str(model.epochs))]
    if limits is not None:
        facts += [
            ("batch size", f"{limits.init_batch_size} initially, at most {limits.max_batch_size}"),
            ("batch on one GPU", f"{limits.min_local_bsz} to {limits.max_local_bsz}"),
            ("validated batch sizes", ", ".join(str(size) for size in model.batch_sizes)),
            ("iterations at the initial batch size", f"{model.epoch_end(model.epochs - 1):,.0f}"),
        ]
    optional = {
        "GPUs at most": model.max_gpus,
        "batch size is fixed at": model.fixed_batch_size,
        "restart delay": None if model.restart_delay_s is None else f"{model.restart_delay_s} s",
    }
    facts += [(name, str(value)) for name, value in optional.items() if value is not None]
    click.echo(table(("property", "value"), facts, left=2))


def _throughputs(
    model: Application,
    sizes: Sequence[int],
    types: Sequence[str],
    gpus_per_node: int,
    gpu_counts: Sequence[int] = _GPUS,
) -> pd.DataFrame:
    """Compute the throughput on as few nodes as possible: `gpu_type, gpus, batch_size, throughput`."""
    import pandas as pd

    from simsched.model import Site
    from simsched.model.batch import batch_for_target
    from simsched.model.placement import consolidated_shape

    def rows() -> Iterator[tuple[Any, ...]]:
        limits = model.limits
        for kind in types if limits is not None else ():
            assert limits is not None
            for size in sizes:
                for gpus in gpu_counts:
                    if size >= gpus * limits.min_local_bsz and gpus <= (model.max_gpus or gpus):
                        site = Site(consolidated_shape(gpus, gpus_per_node), kind)
                        yield kind, gpus, size, model.run(site, batch_for_target(limits, size, gpus), 0).throughput

    return pd.DataFrame(list(rows()), columns=["gpu_type", "gpus", "batch_size", "throughput"])


def _figures(model: Application, beside: Application | None, sizes: Sequence[int], nodes: _Nodes) -> dict[str, Drawn]:
    from simsched.report.figures import efficiency_figure, throughput_figure

    both = [model] if beside is None else [model, beside]
    speeds = [_throughputs(one, sizes, [nodes.gpu_type], nodes.gpus_per_node, _DRAWN_GPUS) for one in both]
    worth = [_efficiencies(one, sizes, nodes.gpu_type) for one in both]
    title = f"{model.name}: throughput on {nodes.gpu_type.upper()}"
    return {
        "throughput": throughput_figure(*(one.drop(columns="gpu_type") for one in speeds), title=title),
        "efficiency": efficiency_figure(*worth, title=f"{model.name}: statistical efficiency over training"),
    }


def _efficiencies(model: Application, sizes: Sequence[int], gpu_type: str) -> pd.DataFrame:
    """Compute the efficiency of each batch size and epoch, which does not depend on GPUs."""
    import pandas as pd

    from simsched.model import BatchChoice, Site

    rows = []
    limits = model.limits
    for size in sizes if limits is not None else ():
        assert limits is not None
        steps = -(-size // min(size, limits.max_local_bsz))
        for epoch in range(model.epochs):
            running = model.run(Site((1,), gpu_type), BatchChoice(-(-size // steps), steps - 1), epoch)
            rows.append((epoch / model.epochs, size, running.efficiency))
    return pd.DataFrame(rows, columns=["progress", "batch_size", "efficiency"])
