"""Reads the tables of Kueue's own tests, written in Go, as cases of our format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from simsched.errors import InputError, input_error
from simsched_policies.production.go_values import read_go
from simsched_policies.production.kueue import (
    go_balanced,
    go_flavours,
    go_placed_flavours,
    go_quotas,
    go_schedule,
    go_topology,
)
from simsched_policies.production.kueue.go_objects import KNOWN, fields_of, table_of

Json = dict[str, Any]
Reader = Callable[[str, Any, Mapping[str, Any]], Json]

#: Makes a case from an entry of a test's table: its name, the entry, and the test's variables.
TABLES: Mapping[str, Reader] = {
    "TestFindTopologyAssignments": go_topology.case_of,
    "TestFindTopologyAssignmentsMultiLayerReplacement": go_topology.case_of,
    "TestSchedule": go_schedule.case_of,
    "TestScheduleForTAS": go_schedule.case_of,
    "TestScheduleForTASPreemption": go_schedule.case_of,
    "TestScheduleForTASCohorts": go_schedule.case_of,
    **go_flavours.TABLES,
    **go_quotas.TABLES,
    **go_placed_flavours.TABLES,
}

#: Readers of other tables, by sets of fields; the entries of a table must use all fields of a set.
SHAPES: Sequence[tuple[frozenset[str], Reader]] = (
    (frozenset({"podSets", "nodes"}), go_topology.case_of),
    (frozenset({"workloads", "wantLeft"}), go_schedule.case_of),
    (frozenset({"workloads", "wantNewAssignments"}), go_schedule.case_of),
    (frozenset({"admitted", "incoming", "targetCQ", "wantPreempted"}), go_quotas.victims),
    (frozenset({"domains"}), go_balanced.case_of),
)
#: Names in a test that set rules outside its table: such a table is read only by its name.
_OTHER_RULES = ("AdmissionFairSharing",)


def cases_of(path: Path) -> list[Json]:
    """Return the cases of a file's tables in file order; a case that cannot be read carries the reason.

    Cases of unknown tables carry that reason. Raises `InputError` for a file without any known table.
    """
    file = read_go(path, KNOWN)
    found, known = list[Json](), False
    for table in (name for name in file.functions if name.startswith("Test")):
        values = file.values(table) | {"built": file.built(table, go_schedule.BUILT)}
        entries = table_of(values)
        reader = TABLES.get(table)
        if reader is None and not file.built(table, _OTHER_RULES) and len(file.built(table, ("schedule",))) < 2:
            reader = _by_shape(fields_of(values))
        known |= reader is not None
        found += [_read(reader, name, entry, values) for name, entry in entries]
    if not known:
        raise input_error(str(path), "has no test table that is known", f"known are {', '.join(TABLES)}")
    return found


def _by_shape(fields: Set[str]) -> Reader | None:
    return next((reader for needed, reader in SHAPES if needed <= fields), None)


def _read(reader: Reader | None, name: str, entry: Any, values: Mapping[str, Any]) -> Json:
    if reader is None:
        return {"name": name, "unread": "the model does not read the case's table"}
    try:
        return reader(name, entry, values)
    except InputError as error:
        return {"name": name, "unread": str(error)}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return {"name": name, "unread": f"the case has a value of another kind ({type(error).__name__}: {error})"}
