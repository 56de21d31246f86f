"""Tables of Kueue's own tests, read from Go, as cases of our form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simsched.errors import InputError, input_error
from simsched_policies.production.go_values import read_go
from simsched_policies.production.kueue import go_flavours, go_placed_flavours, go_schedule, go_topology
from simsched_policies.production.kueue.go_objects import KNOWN

Json = dict[str, Any]

#: What makes a case of one entry of a test's table, from its name, the entry, and the test's variables.
TABLES: Mapping[str, Callable[[str, Any, Mapping[str, Any]], Json]] = {
    "TestFindTopologyAssignments": go_topology.case_of,
    "TestFindTopologyAssignmentsMultiLayerReplacement": go_topology.case_of,
    "TestScheduleForTAS": go_schedule.case_of,
    "TestScheduleForTASPreemption": go_schedule.case_of,
    "TestScheduleForTASCohorts": go_schedule.case_of,
    **go_flavours.TABLES,
    **go_placed_flavours.TABLES,
}


def cases_of(path: Path) -> list[Json]:
    """Return the cases of a file's tables, in the order of the file; one that cannot be read says why.

    Cases of other tables of the file say that their table is not known. Raises `InputError` for a file without any
    table that is known.
    """
    file = read_go(path, KNOWN)
    if not set(TABLES) & set(file.functions):
        raise input_error(str(path), "has no test table that is known", f"known are {', '.join(TABLES)}")
    found = []
    for table in (name for name in file.functions if name.startswith("Test")):
        values = file.values(table)
        cases = values.get("cases", values.get("tests"))
        for name, entry in (cases if isinstance(cases, dict) else {}).items():
            try:
                found.append(TABLES.get(table, _unknown)(name, entry, values))
            except InputError as error:
                found.append({"name": name, "unread": str(error)})
    return found


def _unknown(name: str, _: Any, __: Mapping[str, Any]) -> Json:
    return {"name": name, "unread": "the model does not read the case's table"}
