"""`simsched application`: fit applications to measurements, show them, begin one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.output import json_option, print_json, table
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    from simsched.calibration.fit_accuracy import Truth
    from simsched.model.application import Application
    from simsched.report.figures.style import Drawn

_GPUS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_DRAWN_GPUS = (1, 2, 4, 8, 16, 32, 64)
_MOST_SIZES = 6


@click.group()
def application() -> None:
    """Fit, show and begin applications, the models of what jobs are physically."""


@application.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--out", metavar="DIR", default="applications", show_default=True, type=click.Path(path_type=Path),
    help="Folder for the application files.",
)  # fmt: skip
@json_option
def fit(folder: Path, out: Path, as_json: bool) -> None:
    """Fit applications to a folder of measurements; report the errors and write one YAML each."""
    from simsched.calibration.application_fit import fit_folder, write_documents

    results = fit_folder(folder)
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
@click.option("--measured", metavar="DIR", help="Folder of measurements to draw beside the model, as circles.")
@click.option("--gpu-type", metavar="TYPE", default="t4", show_default=True)
@click.option("--out", metavar="DIR", default="figures", show_default=True, type=click.Path(path_type=Path))
@click.option("--no-plots", is_flag=True, help="Draw no figures.")
def show(name: str, path: str | None, measured: str | None, gpu_type: str, out: Path, no_plots: bool) -> None:
    """Print an application's model; draw its throughput over GPUs and batches and its efficiency over training."""
    found = _find(name, path)
    beside = None if measured is None else _find(name, measured)
    _print_facts(found)
    click.echo()
    sizes = _some_sizes(found.batch_sizes)
    _print_throughput(found, sizes, gpu_type)
    if no_plots:
        return
    from simsched.report.figures.style import save

    for kind, drawn in _figures(found, beside, sizes, gpu_type).items():
        for file in save(*drawn, out, f"{name}-{kind}"):
            if file.suffix == ".png":
                click.echo(f"Figure: {file}")


@application.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--path", metavar="DIR", type=click.Path(path_type=Path), help="Fitted applications. [default: shipped]")
@click.option("--out", metavar="DIR", default="figures", show_default=True, type=click.Path(path_type=Path))
@click.option("--no-plots", is_flag=True, help="Draw no figures.")
@json_option
def compare(folder: Path, path: Path | None, out: Path, no_plots: bool, as_json: bool) -> None:
    """Say how far fitted applications are from a folder of measurements, by kinds of placement; draw both."""
    from dataclasses import asdict

    from simsched.calibration.fit_accuracy import compare_folder

    found = compare_folder(folder, path)
    figures = [] if no_plots else _draw_sheets(folder, path, out)
    if as_json:
        print_json({"applications": [asdict(one) for one in found], "figures": [str(file) for file in figures]})
        return
    _print_truth(found)
    for file in figures:
        if file.suffix == ".png":
            click.echo(f"Figure: {file}")


def _print_truth(found: Sequence[Truth]) -> None:
    from simsched.calibration.fit_accuracy import KINDS

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
    click.echo(table(("application", "mean error", "at worst", "training time, at worst"), efficiency))


def _draw_sheets(measurements: Path, applications: Path | None, out: Path) -> list[Path]:
    """Draw throughput and efficiency of every measured application, with the model beside."""
    import pandas as pd

    from simsched.applications.catalogue import catalogue
    from simsched.report.figures.model_sheet import efficiency_sheet, throughput_sheet
    from simsched.report.figures.style import save

    sources = {"measured": catalogue(str(measurements)), "model": catalogue(applications and str(applications))}
    throughput, efficiency = [], []
    for name, measured in sources["measured"].applications.items():
        sizes, gpu_type = _some_sizes(measured.batch_sizes), (measured.gpu_types or ("",))[0]
        for source, known in sources.items():
            one, what = known.applications[name], {"application": name, "source": source}
            throughput += [what | row for row in _throughputs(one, sizes, gpu_type, _DRAWN_GPUS)]
            efficiency += [what | row for row in _efficiencies(one, sizes, gpu_type)]
    sheets = {
        "throughput-fit": throughput_sheet(pd.DataFrame(throughput)),
        "efficiency-fit": efficiency_sheet(pd.DataFrame(efficiency)),
    }
    return [path for name, drawn in sheets.items() for path in save(*drawn, out, name)]


def _share(share: float | None) -> str:
    return "-" if share is None else _percent(share)[0]


def _find(name: str, path: str | None) -> Application:
    from simsched.applications.catalogue import catalogue

    known = catalogue(path).applications
    if name not in known:
        raise input_error(f"application '{name}'", "there is no such application", nearest(name, known))
    return known[name]


@application.command()
@click.argument("name")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="[default: NAME.yaml]")
def init(name: str, out: Path | None) -> None:
    """Write a small, complete application file to start from."""
    from simsched.applications.file_format import template

    path = out or Path(f"{name}.yaml")
    if path.exists():
        raise input_error(path, "the file is there already", "name another with --out")
    _write(path, template(name))
    click.echo(path)


def _write(path: Path, text: str) -> None:
    """Write a text whole or not at all."""
    aside = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise input_error(path, f"cannot be written: {error.strerror}", "name another place with --out") from error


def _percent(*shares: float) -> list[str]:
    return [f"{100 * share:.1f}" for share in shares]


def _some_sizes(sizes: Sequence[int]) -> list[int]:
    """Pick some batch sizes, first and last among them."""
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
    found: Application, sizes: Sequence[int], gpu_type: str, gpu_counts: Sequence[int] = _GPUS
) -> Iterator[dict[str, float]]:
    """Compute examples per second on as few nodes of four as possible, wherever the batch can be split so."""
    from simsched.agent.fixed_agent import fixed_agent
    from simsched.model.job import JobSpec
    from simsched.model.placement import consolidated_shape

    for size in sizes:
        for gpus in gpu_counts:
            if found.limits is None or size < gpus * found.limits.min_local_bsz or gpus > (found.max_gpus or gpus):
                continue
            shape = consolidated_shape(gpus, 4)
            agent = fixed_agent(JobSpec("", 0, gpus, found.name, size), found)
            batch = agent.choose(len(shape), gpus)
            running = found.run(shape, batch, 0, gpu_type)
            yield {"gpus": gpus, "batch_size": size, "throughput": running.throughput}


def _print_throughput(found: Application, sizes: Sequence[int], gpu_type: str) -> None:
    values = {(row["gpus"], row["batch_size"]): row["throughput"] for row in _throughputs(found, sizes, gpu_type)}
    gpus = sorted({gpus for gpus, _ in values})
    rows = [
        (str(count), *(f"{values[count, size]:,.1f}" if (count, size) in values else "-" for size in sizes))
        for count in gpus
    ]
    click.echo("Throughput in examples/s, by GPUs (nodes of 4, as few as possible) and total batch size:")
    click.echo(table(("GPUs", *(f"{size}" for size in sizes)), rows, left=0))


def _figures(found: Application, beside: Application | None, sizes: Sequence[int], gpu_type: str) -> dict[str, Drawn]:
    import pandas as pd

    from simsched.report.figures.models import efficiency_figure, throughput_figure

    both = [found] if beside is None else [found, beside]
    speeds = [pd.DataFrame(list(_throughputs(one, sizes, gpu_type, _DRAWN_GPUS))) for one in both]
    worth = [pd.DataFrame(list(_efficiencies(one, sizes, gpu_type))) for one in both]
    return {
        "throughput": throughput_figure(*speeds, title=f"{found.name}: throughput on {gpu_type.upper()}"),
        "efficiency": efficiency_figure(*worth, title=f"{found.name}: statistical efficiency over training"),
    }


def _efficiencies(found: Application, sizes: Sequence[int], gpu_type: str) -> Iterator[dict[str, Any]]:
    """Compute the efficiency of each batch size in each epoch; it does not depend on the GPUs."""
    from simsched.model.application import BatchChoice

    limits = found.limits
    if limits is None:
        return
    for size in sizes:
        local = min(size, limits.max_local_bsz)
        accum = -(-size // local) - 1
        for epoch in range(found.epochs):
            running = found.run((1,), BatchChoice(-(-size // (accum + 1)), accum), epoch, gpu_type)
            yield {"progress": epoch / found.epochs, "batch_size": size, "efficiency": running.efficiency}
