"""`simsched export`: schedules and jobs of a run in formats that other tools open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    from simsched.results import Cell, Run


def _perfetto(cell: Cell, path: Path) -> str:
    from simsched.report import write_perfetto

    return f"{write_perfetto(cell, path):,} slices"


def _swf(cell: Cell, path: Path) -> str:
    from simsched.workload import write_swf

    jobs = cell.jobs.sort_values("submit_time_s", kind="stable")
    fields = {
        "submit time": jobs["submit_time_s"],
        "wait time": jobs["start_time_s"] - jobs["submit_time_s"],
        "run time": jobs["held_s"],
        "allocated processors": (jobs["attained_gpu_s"] / jobs["held_s"]).round().where(jobs["held_s"] > 0, -1),
        "requested processors": jobs["num_gpus"],
        "status": jobs["status"].where(jobs["status"] != "", "Pass"),
    }
    groups = cell.manifest.get("cluster") or []
    about = {
        "Computer": "simulated",
        "Preemption": "TS" if (jobs["restarts"] > 0).any() else "No",
        "MaxNodes": sum(group["nodes"] for group in groups),
        "MaxProcs": sum(group["nodes"] * group["gpus_per_node"] for group in groups),
        "Note": "a processor is a GPU",
    }
    write_swf(jobs.assign(**fields), path, about=about)
    return f"{len(jobs):,} jobs"


def _batsim(cell: Cell, path: Path) -> str:
    from simsched.files import write_text
    from simsched.report import batsim_jobs

    write_text(path, batsim_jobs(cell))
    return f"{len(cell.jobs):,} jobs"


#: The ending of each format's files, and the function that writes a cell and describes the content.
_FORMATS: Mapping[str, tuple[str, Callable[[Cell, Path], str]]] = MappingProxyType(
    {"perfetto": (".json.gz", _perfetto), "swf": (".swf", _swf), "batsim": ("_jobs.csv", _batsim)}
)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--to", "layout", required=True, type=click.Choice(list(_FORMATS)), help="Format of the files.")
@click.option("--policy", metavar="LABEL", help="Only the cells of this policy.")
@click.option("--seed", type=int, metavar="N", help="Only the cells of this seed.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder. [default: RUN/exports]")
def export(folder: Path, layout: str, policy: str | None, seed: int | None, out: Path | None) -> None:
    """Write the schedules or jobs of a run for other tools, one file per cell, and print their paths.

    perfetto: trace events, for ui.perfetto.dev or chrome://tracing (a process per node, a thread per GPU, a slice per
    job). swf: jobs in the Standard Workload Format. batsim: jobs as Batsim's _jobs.csv.
    """
    from simsched.outlets import file_name
    from simsched.results import read_run
    from simsched.results.compare import row_name

    run = read_run(folder)
    ending, write = _FORMATS[layout]
    where = out or folder / "exports"
    for cell in _chosen(run, policy, seed):
        path = where / f"{file_name(f'{row_name(cell.policy, cell.point)}-seed-{cell.seed}')}{ending}"
        try:
            where.mkdir(parents=True, exist_ok=True)
            held = write(cell, path)
        except OSError as error:
            raise input_error(path, f"cannot be written: {error.strerror}", "name another folder with --out") from None
        click.echo(f"{path}: {held}")


def _chosen(run: Run, policy: str | None, seed: int | None) -> list[Cell]:
    """Return the cells of a policy and a seed; raises `InputError` if the run has none."""
    if policy is not None and policy not in run.policies:
        raise input_error(run.folder, f"no policy is labelled '{policy}'", nearest(policy, run.policies))
    seeds = sorted({cell.seed for cell in run.cells})
    if seed is not None and seed not in seeds:
        raise input_error(run.folder, f"has no seed {seed}", f"its seeds are {', '.join(map(str, seeds))}")
    return [cell for cell in run.cells if policy in (None, cell.policy) and seed in (None, cell.seed)]
