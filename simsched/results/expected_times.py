"""Checks a result folder against completion times that it should reproduce exactly."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from simsched.arithmetic import ordered_sum
from simsched.errors import InputError, Problem, input_error
from simsched.results.reader import RUN_FILE, Cell, read_cell, read_run

_HEADER = ("workload", "job", "jct_s")
_MOST_PROBLEMS = 20

#: Completion times by job, by workload.
Expected = dict[str, dict[str, int]]


@dataclass(frozen=True)
class JobDifference:
    """A job whose completion time differs from the expected one, in seconds."""

    job: str
    expected_s: int
    found_s: int

    @property
    def seconds(self) -> int:
        """Seconds by which the job took longer than expected."""
        return self.found_s - self.expected_s


@dataclass(frozen=True)
class Agreement:
    """The check of one cell against the expected completion times of its workload."""

    cell: Cell
    workload: str
    equal: int
    different: tuple[JobDifference, ...]
    expected_mean_s: float
    found_mean_s: float

    @property
    def largest_difference_s(self) -> int:
        """Largest absolute difference of any job, in seconds."""
        return max((abs(job.seconds) for job in self.different), default=0)

    @property
    def exact(self) -> bool:
        """Whether every job took exactly the expected time."""
        return not self.different


def compare_expected(results: Cell | Path, expected: Path) -> list[Agreement]:
    """Compare a cell, its folder, or every cell of a run's folder with a CSV of `workload,job,jct_s`.

    A cell's workload is the name in its manifest, for a workload file its stem; cells not in the CSV are left out.
    Raises `InputError` if none is left, or the CSV is malformed or has other jobs than a cell.
    """
    times = read_expected(expected)
    cells = _cells(results)
    listed = [cell for cell in cells if cell.workload_name in times]
    if not listed:
        names = ", ".join(sorted({cell.workload_name or "(unnamed)" for cell in cells}))
        known = ", ".join(sorted(times))
        raise input_error(expected, f"has no jobs of the workload {names}", f"its column 'workload' names {known}")
    return [_agreement(cell, times[cell.workload_name], expected) for cell in listed]


def _cells(results: Cell | Path) -> tuple[Cell, ...]:
    if isinstance(results, Cell):
        return (results,)
    return read_run(results).cells if (Path(results) / RUN_FILE).is_file() else (read_cell(results),)


def _agreement(cell: Cell, expected: Mapping[str, int], path: Path) -> Agreement:
    table = cell.table("jobs", ["job_id", "jct_s"])
    found = dict(zip(table["job_id"].tolist(), table["jct_s"].tolist(), strict=True))
    problems = list(_misfits(cell.workload_name, expected, found, path))
    if problems:
        raise InputError(*problems[:_MOST_PROBLEMS])
    different = tuple(JobDifference(job, expected[job], found[job]) for job in expected if expected[job] != found[job])
    return Agreement(
        cell=cell,
        workload=cell.workload_name,
        equal=len(expected) - len(different),
        different=different,
        expected_mean_s=ordered_sum(expected.values()) / len(expected),
        found_mean_s=ordered_sum(found[job] for job in expected) / len(expected),
    )


def _misfits(workload: str, expected: Mapping[str, int], found: Mapping[str, int], path: Path) -> Iterator[Problem]:
    """Find the jobs that are only in the list, with their lines, and those that are only in the results."""
    remedy = "give the list of the workload that was run, with all of its jobs"
    with path.open(encoding="utf-8", newline="") as file:
        for line, row in enumerate(csv.reader(file), start=1):
            name, job = ([cell.strip() for cell in row] + ["", ""])[:2]
            if name == workload and job in expected and job not in found:
                yield Problem(
                    str(path), f"names the job '{job}', which the run of {workload} does not have", remedy, line
                )
    for job in found:
        if job not in expected:
            yield Problem(str(path), f"does not name the job '{job}', which the run of {workload} has", remedy)


def read_expected(path: Path) -> Expected:
    """Read a CSV of `workload,job,jct_s`; raises `InputError` naming every invalid row."""
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
    """Add one row to `times`; return its error, empty if it is valid."""
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
