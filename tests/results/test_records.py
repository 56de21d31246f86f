"""Records packed in columns are the rows that came, to the type, and give the table that pandas makes of these rows."""

import math

import pandas as pd
from hypothesis import given, strategies as st

from simsched.results.rows import ALLOCATIONS, JOBS, OUTAGES, ROUNDS, OutageRecord, Records

VALUES = {
    "string": st.sampled_from(["", "a", "ü b"]),
    "bool": st.booleans(),
    "int32": st.integers(0, 2**31 - 1) | st.just(7),
    "int64": st.integers(0, 10**15) | st.just(0),
    "double": st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, math.inf]),
    "map<string, double>": st.sampled_from([{}, {"a": 1.0}, {"a": 1}]),
}


@given(st.data(), st.sampled_from([JOBS, ALLOCATIONS, ROUNDS, OUTAGES]), st.booleans())
def test_packed_records_are_those_that_came(data, table, fine):
    kinds = [VALUES["double" if fine and column.type == "int64" else column.type] for column in table.columns]
    rows = [table.record._make(row) for row in data.draw(st.lists(st.tuples(*kinds), max_size=6))]
    records = Records(table)
    for row in rows:
        records.rows.append(row)
        if data.draw(st.booleans()):
            records.pack()
    assert len(records) == len(rows)
    shown = records.frame({column.feature for column in table.columns})
    pd.testing.assert_frame_equal(shown, pd.DataFrame(rows, columns=list(table.record._fields)))
    assert repr(list(records)) == repr(rows)


def test_whole_seconds_become_fractions_with_the_first_fraction():
    records = Records(OUTAGES)
    records.rows.append(OutageRecord(0, 1, 2, "off", True))
    records.pack()
    records.rows.append(OutageRecord(0, 2.5, 3, "off", True))
    assert records.frame()["start_s"].tolist() == [1.0, 2.5]
    assert records.frame()["end_s"].dtype == "int64"
