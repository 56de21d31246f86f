"""Sharing by a table of measured pairs.

The table is CSV, one measured pair per row: `gpu_type`, then `application` and `batch_size` of one job and
`other_application` and `other_batch_size` of the other (batch sizes per GPU, 0 if there is none), then `speed` and
`other_speed`: what each achieves next to the other, as a share of its speed when alone.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simsched.errors import InputError, Problem, input_error, nearest
from simsched.model.colocation.contract import Resident
from simsched.reading import number, records, whole_number

COLUMNS = (
    "gpu_type", "application", "batch_size", "other_application", "other_batch_size", "speed", "other_speed",
)  # fmt: skip
#: A table to start from.
TEMPLATE = ",".join(COLUMNS) + "\nv100,resnet-18,64,lm,20,0.80,0.65\nv100,lm,20,lm,20,0.60,0.60\n"
_FASTEST = 1.5


class Kind(NamedTuple):
    """An application at a batch size per GPU."""

    application: str
    batch_size: int

    def __str__(self) -> str:
        """Render as `'name' at batch size n per GPU`."""
        return f"'{self.application}' at batch size {self.batch_size} per GPU"


Key = tuple[str, Kind, Kind]


@dataclass(frozen=True)
class PairTable:
    """Speeds of pairs of jobs on one GPU, by GPU type.

    `pairs[gpu_type, a, b]` holds the speeds of `a` and `b`, for a <= b. `default` is the speed of both jobs of a pair
    that is not in the table; None makes such a pair an error.
    """

    pairs: Mapping[Key, tuple[float, float]]
    default: float | None = None

    def speeds(self, on_one_gpu: Sequence[Resident], gpu_type: str) -> tuple[float, ...]:
        """Return the measured speeds of two residents; 1 for a job that is alone.

        Raises `InputError` naming the pair if it is unknown and there is no default, and for three or more jobs.
        """
        if len(on_one_gpu) <= 1:
            return (1.0,) * len(on_one_gpu)
        if len(on_one_gpu) > 2:
            remedy = "set engine.sharing.max_jobs to 2, or choose another model of sharing"
            raise input_error("sharing", f"{len(on_one_gpu)} jobs share a GPU, and a table knows pairs only", remedy)
        one, other = (Kind(resident.application, resident.batch_size) for resident in on_one_gpu)
        found = self.pairs.get((gpu_type, min(one, other), max(one, other)))
        if found is None:
            return (self._unknown(one, other, gpu_type),) * 2
        return found if one <= other else found[::-1]

    def _unknown(self, one: Kind, other: Kind, gpu_type: str) -> float:
        if self.default is not None:
            return self.default
        types = {key[0] for key in self.pairs}
        hint = f"no pair is known on '{gpu_type}'; {nearest(gpu_type, types)}" if gpu_type not in types else ""
        raise input_error(
            "pair table",
            f"{one} beside {other} on '{gpu_type}' is not in it",
            hint or "measure the pair and add a row, or declare a default speed",
        )


def read_pairs(text: str, where: str, default: float | None = None) -> PairTable:
    """Read a table from its CSV text; `where` names the file in messages.

    Raises `InputError` with one problem per bad row: a missing column or type, a speed that is not a number,
    below 0 or above 1.5, or a duplicate pair.
    """
    if default is not None and not 0 < default <= _FASTEST:
        raise input_error(
            where, f"the default speed is {default}, not in (0, {_FASTEST}]", "a share of the speed when alone"
        )
    pairs: dict[Key, tuple[float, float]] = {}
    lines: dict[Key, int] = {}
    problems: list[Problem] = []
    for line, row in records(text.splitlines(keepends=True), where, COLUMNS):
        try:
            key, speeds = _row(row)
        except ValueError as error:
            problems.append(Problem(where, str(error), line=line))
            continue
        if key in lines:
            message = f"{key[1]} beside {key[2]} on '{key[0]}' is already in line {lines[key]}"
            problems.append(Problem(where, message, "keep one of them", line))
        pairs[key], lines[key] = speeds, line
    if problems:
        raise InputError(*problems)
    return PairTable(pairs, default)


def write_pairs(table: PairTable) -> str:
    """Return the CSV text of a table, rows sorted."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for (gpu_type, one, other), speeds in sorted(table.pairs.items()):
        writer.writerow([gpu_type, *one, *other, *(repr(speed) for speed in speeds)])
    return out.getvalue()


def _row(row: Mapping[str, str | None]) -> tuple[Key, tuple[float, float]]:
    for column in ("gpu_type", "application", "other_application"):
        if not (row[column] or "").strip():
            raise ValueError(f"{column} is empty; name it in every row")
    one = Kind(str(row["application"]).strip(), _batch(row["batch_size"]))
    other = Kind(str(row["other_application"]).strip(), _batch(row["other_batch_size"]))
    speeds = _speed(row["speed"], "speed"), _speed(row["other_speed"], "other_speed")
    gpu_type = str(row["gpu_type"]).strip()
    return ((gpu_type, one, other), speeds) if one <= other else ((gpu_type, other, one), speeds[::-1])


def _batch(text: str | None) -> int:
    return whole_number(text or "0", "the batch size (examples per GPU, 0 where there is none)")


def _speed(text: str | None, column: str) -> float:
    speed = number(text, f"{column}, a share of the speed when alone,")
    if not 0 < speed <= _FASTEST:
        raise ValueError(
            f"{column} is {speed:g}, not in (0, {_FASTEST}]; write a share of the speed when alone, "
            "and leave out pairs that cannot run together"
        )
    return speed


def pairs_from_gavel(document: Mapping[str, Mapping[str, Mapping[str, object]]]) -> PairTable:
    """Read the pairs of single-GPU jobs from the layout published with Gavel (`simulation_throughputs.json`).

    `document[gpu_type]["('name (batch size n)', gpus)"]` holds steps per second alone under "null", and with another
    job as [own, other's]. Pairs of larger jobs were not measured and are left out, as are pairs at 0 steps per second
    (they do not fit together) and the types that repeat others "unconsolidated".
    """
    pairs: dict[Key, tuple[float, float]] = {}
    for gpu_type, jobs in sorted(document.items()):
        if gpu_type.endswith("_unconsolidated"):
            continue
        alone = {name: row["null"] for name, row in jobs.items() if name.endswith(", 1)")}
        for name, other, (rate, other_rate) in _measured(jobs, alone):
            one_kind, other_kind = gavel_kind(name), gavel_kind(other)
            if one_kind <= other_kind and rate > 0 and other_rate > 0:
                speeds = rate / _number(alone[name]), other_rate / _number(alone[other])
                pairs[gpu_type, one_kind, other_kind] = speeds
    return PairTable(pairs)


def _measured(
    jobs: Mapping[str, Mapping[str, object]], alone: Mapping[str, object]
) -> Iterator[tuple[str, str, tuple[float, float]]]:
    for name in alone:
        for other, rates in jobs[name].items():
            if other in alone and isinstance(rates, Sequence) and len(rates) == 2:
                yield name, other, (_number(rates[0]), _number(rates[1]))


def _number(value: object) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise input_error(
        "throughputs", f"{value!r} is not a number of steps per second", "see the layout published with Gavel"
    )


def gavel_kind(name: str) -> Kind:
    """Return the application and batch size in a name such as `('LM (batch size 5)', 1)`."""
    job = name.removeprefix("('").rpartition("', ")[0]
    application, _, batch = job.removesuffix(")").partition(" (batch size ")
    return Kind(application, int(batch or 0))
