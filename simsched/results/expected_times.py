"""Checks a result folder against completion times that it should reproduce exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from simsched.arithmetic import ordered_sum
from simsched.errors import InputError, Problem, input_error
from simsched.reading import read_records, whole_number
from simsched.results.reader import RUN_FILE, Cell, read_cell, read_run

_HEADER = ("workload", "job", "jct_s")
_MOST_PROBLEMS = 20


class _Time(NamedTuple):
    """A completion time, and the line of the file that gives it."""

    jct_s: int
    line: int


#: Completion times by job, by workload.
Expected = dict[str, dict[str, _Time]]


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


def _agreement(cell: Cell, expected: Mapping[str, _Time], path: Path) -> Agreement:
    table = cell.table("jobs", ["job_id", "jct_s"])
    found = dict(zip(table["job_id"].tolist(), table["jct_s"].tolist(), strict=True))
    name = cell.workload_name
    messages = [
        (f"names the job '{job}', which the run of {name} does not have", time.line)
        for job, time in expected.items()
        if job not in found
    ]
    messages += [
        (f"does not name the job '{job}', which the run of {name} has", 0) for job in found if job not in expected
    ]
    if messages:
        remedy = "give the list of the workload that was run, with all of its jobs"
        raise InputError(*(Problem(str(path), message, remedy, line) for message, line in messages[:_MOST_PROBLEMS]))
    times = {job: time.jct_s for job, time in expected.items()}
    different = tuple(JobDifference(job, jct_s, found[job]) for job, jct_s in times.items() if jct_s != found[job])
    return Agreement(
        cell=cell,
        workload=name,
        equal=len(times) - len(different),
        different=different,
        expected_mean_s=ordered_sum(times.values()) / len(times),
        found_mean_s=ordered_sum(found[job] for job in times) / len(times),
    )


def read_expected(path: Path) -> Expected:
    """Read a CSV of `workload,job,jct_s`; raises `InputError` naming every invalid row."""
    times: Expected = {}
    problems: list[Problem] = []
    for line, row in read_records(Path(path), _HEADER):
        workload, job, seconds = (row[name].strip() for name in _HEADER)
        try:
            time = _Time(whole_number(seconds, "jct_s"), line)
        except ValueError as error:
            problems.append(Problem(str(path), str(error), "", line))
            continue
        if job in times.setdefault(workload, {}):
            message = f"names the job '{job}' of {workload} a second time"
            problems.append(Problem(str(path), message, "name each job once", line))
        times[workload][job] = time
    if problems:
        raise InputError(*problems)
    return times
