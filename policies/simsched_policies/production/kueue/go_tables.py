"""Tables of Kueue's own tests, read from Go, as cases of our form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simsched.errors import InputError, input_error
from simsched_policies.production.go_values import read_go
from simsched_policies.production.kueue import go_flavours, go_schedule, go_topology
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
}


def cases_of(path: Path) -> list[Json]:
    """Return the cases of a file's tables, in the order of the file; one that cannot be read says why.

    Raises `InputError` for a file without any table that is known.
    """
    file = read_go(path, KNOWN)
    tables = [name for name in file.functions if name in TABLES]
    if not tables:
        raise input_error(str(path), "has no test table that is known", f"known are {', '.join(TABLES)}")
    found = []
    for table in tables:
        values = file.values(table)
        for name, entry in values.get("cases", values.get("tests", {})).items():
            try:
                found.append(TABLES[table](name, entry, values))
            except InputError as error:
                found.append({"name": name, "unread": str(error)})
    return found
