"""Checks this package against the tables of KAI-Scheduler's own integration tests.

`python -m simsched_policies.production.kai.scenarios FILE_OR_FOLDER...` reads Go sources (`.go`, `.go.txt`) and prints,
for each file, how many of its cases are equal, different and skipped, the unknown words for which cases are skipped,
and the differences.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from simsched.errors import InputError, input_error
from simsched_policies.production.case_reports import Report, Verdict, described
from simsched_policies.production.kai.board import Board, Seat
from simsched_policies.production.kai.model import Held, Snapshot
from simsched_policies.production.kai.round import run_round
from simsched_policies.production.kai.tables import Case, Expected, LeftOutError, cases_in


def check_file(path: Path) -> Report:
    """Run every case of a file; raises `InputError` if there is none."""
    verdicts = tuple(
        Verdict(name, "left out", str(case)) if isinstance(case, LeftOutError) else check(name, case)
        for name, case in cases_in(path)
    )
    if not verdicts:
        remedy = "name a Go source with a table of TestTopologyMetadata"
        raise input_error(str(path), "has no case of an integration test of KAI-Scheduler", remedy)
    return Report(path, verdicts)


def check(name: str, case: Case) -> Verdict:
    """Run the rounds of a case and compare, first after the stated number and then after each round."""
    snapshot = case.snapshot
    for number in range(1, case.rounds + case.rounds_after + 1):
        board = run_round(snapshot)
        snapshot = after_round(snapshot, board, case.deleted)
        if number >= case.rounds and (wrong := list(_differences(case, board, snapshot.held))):
            return Verdict(name, "different", f"round {number}: {'; '.join(wrong)}")
    return Verdict(name, "equal")


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


def files_in(places: Iterable[Path]) -> list[Path]:
    """Return the given files, and the Go sources in the given folders, sorted."""
    found: list[Path] = []
    for place in places:
        found += sorted([*place.glob("*.go"), *place.glob("*.go.txt")]) if place.is_dir() else [place]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check files and print the reports; return 1 if too few cases are equal, 2 for files of another format."""
    parser = argparse.ArgumentParser(prog="python -m simsched_policies.production.kai.scenarios", description=__doc__)
    parser.add_argument("places", nargs="+", type=Path, metavar="FILE_OR_FOLDER")
    parser.add_argument("--least", type=float, default=0.95, help="share of all cases that must be equal")
    asked = parser.parse_args(arguments)
    try:
        reports = [check_file(path) for path in files_in(asked.places)]
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{described(reports)}\n")
    equal, cases = sum(report.count("equal") for report in reports), sum(len(report.verdicts) for report in reports)
    return int(equal < asked.least * cases)


if __name__ == "__main__":
    sys.exit(main())
