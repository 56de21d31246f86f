"""Sets a result folder against completion times that it should reproduce exactly."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simsched.errors import InputError, Problem, input_error
from simsched.results.reader import RUN_FILE, Cell, read_cell, read_run

_HEADER = ("workload", "job", "jct_s")

#: Completion times by job, by workload.
Expected = dict[str, dict[str, int]]


@dataclass(frozen=True)
class JobDifference:
    """A job that took another time than expected, in seconds."""

    job: str
    expected_s: int
    found_s: int

    @property
    def seconds(self) -> int:
        """Seconds by which the job took longer than expected."""
        return self.found_s - self.expected_s


@dataclass(frozen=True)
class Agreement:
    """One cell against the expected completion times of its workload.

    `missing` jobs are expected and not in the results; `unexpected` ones the other way round. The two means are over
    the jobs that both have.
    """

    cell: Cell
    workload: str
    equal: int
    different: tuple[JobDifference, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    expected_mean_s: float
    found_mean_s: float

    @property
    def largest_difference_s(self) -> int:
        """Largest difference of any job, in seconds, without its sign."""
        return max((abs(job.seconds) for job in self.different), default=0)

    @property
    def exact(self) -> bool:
        """Whether every job is there and took exactly the time expected."""
        return self.equal > 0 and not (self.different or self.missing or self.unexpected)


def compare_expected(results: Cell | Path, expected: Path) -> list[Agreement]:
    """Compare a cell, its folder, or every cell of a run's folder with a CSV of `workload,job,jct_s`.

    The workload of a cell is the name in its manifest, for a workload file its stem. Cells whose workload the CSV does
    not name are left out; if none is left, or the CSV is malformed, that is an `InputError`.
    """
    times = read_expected(expected)
    cells = _cells(results)
    found = [_agreement(cell, times[cell.workload_name]) for cell in cells if cell.workload_name in times]
    if not found:
        names = ", ".join(sorted({cell.workload_name or "(unnamed)" for cell in cells}))
        known = ", ".join(sorted(times))
        raise input_error(expected, f"has no jobs of the workload {names}", f"its column 'workload' names {known}")
    return found


def _cells(results: Cell | Path) -> tuple[Cell, ...]:
    if isinstance(results, Cell):
        return (results,)
    return read_run(results).cells if (Path(results) / RUN_FILE).is_file() else (read_cell(results),)


def _agreement(cell: Cell, expected: Mapping[str, int]) -> Agreement:
    table = cell.table("jobs", ["job_id", "jct_s"])
    found = dict(zip(table["job_id"].tolist(), table["jct_s"].tolist(), strict=True))
    both = [job for job in expected if job in found]
    different = tuple(JobDifference(job, expected[job], found[job]) for job in both if expected[job] != found[job])
    return Agreement(
        cell=cell,
        workload=cell.workload_name,
        equal=len(both) - len(different),
        different=different,
        missing=tuple(job for job in expected if job not in found),
        unexpected=tuple(job for job in found if job not in expected),
        expected_mean_s=sum(expected[job] for job in both) / max(len(both), 1),
        found_mean_s=sum(found[job] for job in both) / max(len(both), 1),
    )


def read_expected(path: Path) -> Expected:
    """Read a CSV of `workload,job,jct_s`; raises `InputError` that names every row at fault."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise input_error(
            path, f"cannot be read ({error})", "name a CSV file with the columns workload,job,jct_s"
        ) from error
    if not rows or tuple(cell.strip() for cell in rows[0]) != _HEADER:
        raise input_error(path, "does not begin with the columns workload,job,jct_s", "add that line", line=1)
    times: Expected = {}
    problems: list[Problem] = []
    for line, row in enumerate(rows[1:], start=2):
        fault = _take_row(row, times) if row else ""
        if fault:
            problems.append(Problem(str(path), fault, "write workload,job,seconds with each job once", line))
    if problems:
        raise InputError(*problems)
    return times


def _take_row(row: list[str], times: Expected) -> str:
    """Add one row to `times`; returns what is wrong with it, or nothing."""
    if len(row) != len(_HEADER):
        return f"has {len(row)} fields instead of 3"
    workload, job, seconds = (cell.strip() for cell in row)
    try:
        jct_s = int(seconds)
    except ValueError:
        return f"jct_s '{seconds}' is not a whole number of seconds"
    if job in times.setdefault(workload, {}):
        return f"names the job '{job}' of {workload} a second time"
    times[workload][job] = jct_s
    return ""
