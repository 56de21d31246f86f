"""Cases of KAI-Scheduler's integration tests: `python -m tests.conformance.kai FILE_OR_FOLDER...`.

The form is documented in `tests/data/kai/README.md`: it is `Case` below, field by field.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from simsched_policies.kubernetes.kai.board import Board, Seat
from simsched_policies.kubernetes.kai.model import Held, Snapshot
from simsched_policies.kubernetes.kai.round import run_round

from simsched.errors import input_error
from simsched.reading import read_json
from tests.conformance.case_reports import Report, Verdict, run


@dataclass(frozen=True)
class Expected:
    """The expected fate of a job's pods, or of one pod; and their total request (GPUs, millicores, bytes) if stated."""

    status: str
    node: str = ""
    gpus: float = 0.0
    cpu_milli: float = 0.0
    memory: float = 0.0


@dataclass(frozen=True)
class Case:
    """A cluster at rest and the fate of jobs and pods; pods of `deleted` jobs keep leaving instead of waiting again."""

    name: str
    snapshot: Snapshot
    jobs: Mapping[str, Expected] = field(default_factory=dict)
    pods: Mapping[str, Expected] = field(default_factory=dict)
    rounds: int = 2
    rounds_after: int = 5
    deleted: frozenset[str] = frozenset()


_CASE = TypeAdapter(Case)


def check_file(path: Path) -> Report:
    """Run every case of a file; raises `InputError` if there is none."""
    content = read_json(path)
    entries = content.get("cases") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise input_error(str(path), "has no 'cases'", "see the form in tests/data/kai/README.md")
    return Report(path, tuple(map(check, entries)))


def check(entry: Mapping[str, Any]) -> Verdict:
    """Run the rounds of a case and compare, first after the stated number and then after each round."""
    name = str(entry.get("name", "(no name)"))
    try:
        case = _CASE.validate_python(entry)
    except ValidationError as error:
        first = error.errors()[0]
        return Verdict(name, "left out", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    if unknown := next(_unknown(entry, _CASE.dump_python(case, mode="json")), ""):
        return Verdict(name, "left out", f"{unknown}: is no key of the model")
    if not case.jobs and not case.pods:
        return Verdict(name, "left out", "nothing is expected of the jobs of the case")
    snapshot = case.snapshot
    for number in range(1, case.rounds + case.rounds_after + 1):
        board = run_round(snapshot)
        snapshot = after_round(snapshot, board, case.deleted)
        if number >= case.rounds and (wrong := list(_differences(case, board, snapshot.held))):
            return Verdict(name, "different", f"round {number}: {'; '.join(wrong)}")
    return Verdict(name, "equal")


def _unknown(entry: Any, read: Any, place: str = "case") -> Iterator[str]:
    """Yield the places of keys that the model did not read."""
    if isinstance(entry, Mapping):
        yield from (f"{place}.{key}" for key in entry if key not in read)
        for key in entry:
            yield from _unknown(entry[key], read.get(key), f"{place}.{key}")
    elif isinstance(entry, list):
        for number, (item, of) in enumerate(zip(entry, read, strict=False)):
            yield from _unknown(item, of, f"{place}.{number}")


def after_round(snapshot: Snapshot, board: Board, deleted: frozenset[str] = frozenset()) -> Snapshot:
    """Return the cluster at rest: placed pods run, others wait; those of `deleted` jobs keep leaving."""
    held: dict[str, Held] = {}
    for pod, seat in board.seats().items():
        stays = seat.now is not None and seat.now == seat.future
        if stays or (seat.now is not None and board.job_of[pod].id in deleted):
            held[pod] = _held(board, seat, releasing=not stays)
    return replace(snapshot, held=held)


def _held(board: Board, seat: Seat, *, releasing: bool) -> Held:
    assert seat.now is not None
    return Held(board.room.nodes[seat.now.node].name, seat.now.devices, releasing)


def _differences(case: Case, board: Board, held: Mapping[str, Held]) -> Iterable[str]:
    for name, expected in case.jobs.items():
        yield from _compared(name, expected, [pod.id for pod in board.jobs[name].pods], board, held)
    for name, expected in case.pods.items():
        yield from _compared(name, expected, [name], board, held)


def _compared(name: str, expected: Expected, pods: list[str], board: Board, held: Mapping[str, Held]) -> Iterable[str]:
    for pod in pods:
        where = held.get(pod)
        status = "Pending" if where is None else "Releasing" if where.releasing else "Running"
        if status != expected.status:
            yield f"{pod} is {status}, expected {expected.status}"
        elif where is not None and expected.node and where.node != expected.node:
            yield f"{pod} is on {where.node}, expected {expected.node}"
    asks = board.asks([board.pods[pod] for pod in pods])
    asked = (asks[2], asks[0], 1e6 * asks[1])
    stated = (expected.gpus, expected.cpu_milli, expected.memory)
    if any(want and abs(want - have) > 1e-6 for want, have in zip(stated, asked, strict=True)):
        yield f"{name} asks for {asked}, expected {stated}"


if __name__ == "__main__":
    sys.exit(run("tests.conformance.kai", check_file))
