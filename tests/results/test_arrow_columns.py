"""Columns of Arrow from values of records: those of `pyarrow.array`, made without pandas."""

import subprocess
import sys

import pyarrow as pa
import pytest

from simsched.results.arrow import arrow_array

NUMBERS = pa.map_(pa.string(), pa.float64())
CASES = [
    (pa.string(), ("", "abc", "äöß€", "x y")),
    (pa.string(), ()),
    (pa.int64(), (1, 2**40, -3)),
    (pa.int32(), (1, -(2**31))),
    (pa.int32(), ()),
    (pa.float64(), (1, 2.5, float("inf"))),
    (pa.bool_(), (True, False, True) * 5),
    (pa.bool_(), ()),
    (NUMBERS, ([("a", 1.0), ("b", 2)], (), [("ä", 3)])),
    (NUMBERS, ((), ())),
    (NUMBERS, ()),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=str)
def test_a_short_column_is_the_array_that_arrow_makes(kind, values):
    made = arrow_array(values, kind)
    made.validate(full=True)
    assert made.type == kind
    assert made.equals(pa.array(values, kind))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "x"),
        (pa.int32(), 2**40),
        (pa.float64(), "1"),
        (pa.bool_(), 1),
        (pa.string(), 1),
        (NUMBERS, [(1, 1)]),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_as_arrow_does(kind, value):
    with pytest.raises(pa.ArrowException) as refused:
        pa.array([value], kind)
    with pytest.raises(type(refused.value)):
        arrow_array([value], kind)


def test_no_pandas_is_needed():
    script = f"""
import sys
import pyarrow as pa
from simsched.results.arrow import arrow_array
inf = float("inf")
kinds = {{"string": pa.string(), "int64": pa.int64(), "int32": pa.int32(), "double": pa.float64(), "bool": pa.bool_()}}
kinds["{NUMBERS}"] = pa.map_(pa.string(), pa.float64())
for kind, values in {[(str(kind), values) for kind, values in CASES]!r}:
    arrow_array(values, kinds[kind])
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr
