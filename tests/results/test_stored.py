"""What files of results may hold: values of every kind at the edges of it, and how a fault is named."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import pyarrow as pa
import pytest

from simsched.errors import InputError
from simsched.results.arrow import TYPES, _array, _fault_of
from simsched.results.reader import _read_summary
from simsched.results.rows import LARGEST, Column
from simsched.results.stored import Below, Count, Within, faults, read_json


class Point(NamedTuple):
    x: float
    name: str


class Inner(TypedDict):
    seed: int


class _Maybe(TypedDict, total=False):
    told: Inner
    values: dict[str, float]


class Outer(_Maybe):
    cells: list[Inner]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (int, [0, -(2**63) + 1, 2**63 - 1], [2**63, -(2**63), 1.0, True, "1", None]),
        (float, [0, 1.5, 1e30, -1e30], [2e30, -2e30, float("inf"), float("nan"), True, "1"]),
        (str, ["", "größe", "調度", "\U0001f600"], ["\ud800", "ä\udfff", 1, None]),
        (bool, [True, False], [0, 1, None]),
        (Annotated[int, Within(0, 5)], [0, 5], [-1, 6, 2.0]),
        (Count, [0, 10**9], [-1, 10**9 + 1]),
        (Annotated[str, Below()], ["a", "a/b", "..a"], ["", "/a", "..", "a/../b", "a\\b", "a\0"]),
        (Literal["one", "two"], ["one", "two"], ["three", 1]),
        (int | None, [3, None], ["3"]),
        (list[int], [[], [1, 2]], [[1, "2"], 1, {"1": 1}]),
        (dict[str, int], [{}, {"a": 1}], [{"a": "b"}, [1]]),
        (Point, [[1.0, "a"]], [[1.0], [1.0, "a", 2], ["a", 1.0], {}]),
        (Inner, [{"seed": 1}, {"seed": 1, "more": "?"}], [{}, {"seed": None}, []]),
        (Any, [None, 1, []], []),
    ],
)
def test_values_of_a_kind(kind: Any, good: list[object], bad: list[object]) -> None:
    assert [value for value in good if any(faults(value, kind))] == []
    assert [value for value in bad if not any(faults(value, kind))] == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"cells": [{"seed": 1}, {"seed": "2"}]}, [("cells[1].seed", 'is "2", not a whole number')]),
        ({"cells": [{}, 3]}, [("cells[0].seed", "is not there"), ("cells[1]", "is 3, not a mapping")]),
        ({"cells": 5}, [("cells", "is 5, not a list")]),
        ({"cells": {"a": 1}}, [("cells", "is a mapping, not a list")]),
        ({}, [("cells", "is not there")]),
        ({"cells": [], "told": None, "values": None}, []),
        ({"cells": [], "told": {}}, []),  # as good as absent
        ({"cells": [], "told": {"seed": 1.5}}, [("told.seed", "is 1.5, not a whole number")]),
        ({"cells": [], "values": {"a": 1, "b": "c"}}, [("values.b", 'is "c", not a number')]),
    ],
)
def test_every_fault_is_named_with_its_place(content: object, said: list[tuple[str, str]]) -> None:
    assert list(faults(content, Outer)) == said


def test_kinds_are_called_by_their_names() -> None:
    assert [fault for _, fault in faults("x", int | None)] == ['is "x", not a whole number or null']
    assert [fault for _, fault in faults("x", Literal["a", "b"])] == ['is "x", not one of a, b']
    assert [fault for _, fault in faults(7, Annotated[int, Within(0, 5)])] == ["is 7, not between 0 and 5"]
    assert [fault for _, fault in faults("x", Annotated[int, Within(0, 5)])] == ['is "x", not a whole number']
    assert [fault for _, fault in faults("z" * 58, int)] == [f'is "{"z" * 58}", not a whole number']
    assert [fault for _, fault in faults("z" * 59, int)] == [f'is "{"z" * 29}…{"z" * 28}", not a whole number']
    assert [fault for _, fault in faults("../x", Annotated[str, Below()])] == ['is "../x", which leads out of the run']
    assert [fault for _, fault in faults([1.0], Point)] == ["has 1 parts, not 2"]


def test_what_is_no_file_of_json_is_refused(tmp_path) -> None:
    path = tmp_path / "one.json"
    for content, said in (
        (None, "the file is not there"), ("{", "is not valid JSON"), ("[1]", "is not a JSON object"),
        ('{"a": NaN}', "NaN is not JSON"), ("[" * 100_000, "nested too deeply"), (b"\xff", "cannot be read"),
    ):  # fmt: skip
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(InputError, match=said):
            read_json(path)
    path.write_text('{"seed": 1,\n "seed" 2}')
    with pytest.raises(InputError) as caught:
        read_json(path, Inner)
    assert caught.value.problems[0].line == 2


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("gpu_utilisation", [0, 1, 1.009, -0.009], [1.011, -0.011]),
        ("top5_accuracy", [100, 100.9], [101.1]),
        ("jct_mean_s", [0, 1e9, -0.01], [-0.011]),
        ("what_nobody_knows", [-1e9, 1e9], []),
    ],
)
def test_metrics_of_a_cell_are_those_that_there_can_be(tmp_path, name, good, bad) -> None:
    def read(value):
        (tmp_path / "summary.json").write_text(json.dumps({name: value}))
        return _read_summary(tmp_path / "summary.json")

    assert [read(value)[name] for value in good] == good
    for value in bad:
        with pytest.raises(InputError, match=r"which it cannot be"):
            read(value)


@pytest.mark.parametrize(
    ("values", "column", "said"),
    [
        (pa.array([0, 5]), Column("m"), ""),
        (pa.array([0, None]), Column("m"), "lacks values"),
        (pa.array([1.0, float("nan")]), Column("m"), "holds what is not a number"),
        (pa.array([-1e-7, 1.0]), Column("m"), ""),
        (pa.array([-1e-6, 1.0]), Column("m"), ""),
        (pa.array([-1e-5, 1.0]), Column("m"), "holds -1e-05, less than 0"),
        (pa.array([-1]), Column("m"), "holds -1, less than 0"),
        (pa.array([LARGEST]), Column("m"), ""),
        (pa.array([2 * LARGEST]), Column("m"), "holds 2e+15"),
        (pa.array([float("inf")]), Column("m"), "holds inf"),
        (pa.array([float("inf")]), Column("m", endless=True), ""),
        (pa.array([], pa.float64()), Column("m"), ""),
        (pa.array(["0:1", "1:2 3:4"]), Column("m", form=r"(\d+:\d+ ?)*"), ""),
        (pa.array(["0:1", "1-2", "x"]), Column("m", form=r"(\d+:\d+ ?)*"), "holds '1-2'"),
        (pa.array(["x"]), Column("m"), ""),
        (pa.array(["x" * 60]), Column("m", form="y"), f"holds '{'x' * 60}'"),
        (pa.array(["x" * 61]), Column("m", form="y"), f"holds '{'x' * 30}…{'x' * 29}'"),
    ],
)
def test_values_that_no_run_gives(values, column, said) -> None:
    assert _fault_of(pa.chunked_array([values]), column) == said


def test_columns_of_all_types_are_made_without_pandas() -> None:
    examples = {"int32": [1], "int64": [1], "double": [1.5], "string": ["a"], "bool": [True]}
    for name, kind in TYPES.items():
        assert _array(examples.get(name, [[("a", 1.0)]]), kind) is not None, name
