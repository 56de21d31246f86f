"""What files of results may hold: values of every kind at the edges of it, and how a fault is named."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.policy import registry
from simsched.results.arrow import TYPES, _array, _fault_of, arrow_array, arrow_schema
from simsched.results.metrics import METRICS, metrics_markdown
from simsched.results.reader import _read_summary
from simsched.results.rows import (
    ALLOCATIONS,
    JOBS,
    LARGEST,
    OUTAGES,
    ROUNDS,
    TABLES,
    Column,
    Feature,
    OutageRecord,
    Records,
    schema_markdown,
)
from simsched.results.stored import Manifest, RunIndex, Summary, faults, read_json
from simsched.testing.builders import run

RUN = {"name": "x", "cells": [{"cell": "c", "folder": "cells/c", "policy": "p", "seed": 1, "point": {}}]}


@pytest.mark.parametrize(
    ("shape", "content", "places"),
    [
        (Manifest, {}, []),
        (Manifest, {"more": None, "policy": "p", "workload": "w", "agent": {}, "jobs": None, "jobs_hash": "größe"}, []),
        (Manifest, {"policy": {"name": "p", "label": 1}, "workload": 7}, ["policy.label", "workload"]),
        (Manifest, {"policy": 3, "seed": 2**63, "jobs": -1}, ["policy", "seed", "jobs"]),
        (Manifest, {"seed": 1.0, "jobs": True, "offered_load": "1"}, ["seed", "jobs", "offered_load"]),
        (Manifest, {"failures": {"checkpoint_cost_s": "model", "node_mtbf_s": 1e30}}, []),
        (Manifest, {"failures": {"checkpoint_cost_s": [], "node_mtbf_s": 2e30}},
         ["failures.node_mtbf_s", "failures.checkpoint_cost_s"]),
        (Manifest, {"cluster": [{"nodes": 0, "gpus_per_node": 1}, 3]},
         ["cluster[0].nodes", "cluster[0].gpu_type", "cluster[1]"]),
        (Manifest, {"files": {"a": {"bytes": 1, "sha256": ""}, "..": 1}}, ["files...", "files..."]),
        (Summary, {"a": 1, "b": 1.5, "c": True, "d": None}, ["c", "d"]),
        (RunIndex, RUN | {"fairness": {}, "published_curves": [["f", "p", "s", 1, 2.0]]}, []),
        (RunIndex, RUN | {"fairness": {"folder": "x"}}, ["fairness.definition", "fairness.rounding", "fairness.batch"]),
        (RunIndex, RUN | {"published_curves": [["f", "p", "s", 1]]}, ["published_curves[0][4]"]),
        (RunIndex, {"cells": {"a": 1}}, ["name", "cells"]),
        *((RunIndex, RUN | {"cells": [RUN["cells"][0] | {"cell": place}]}, ["cells[0].cell"])
          for place in ("", "/a", "..", "a/../b", "a\\b", "a\0")),
    ],
)  # fmt: skip
def test_every_fault_of_a_file_is_named_with_its_place(shape, content, places) -> None:
    assert [place for place, _ in faults(json.dumps(content), shape)] == places


def test_what_is_no_file_of_json_is_refused(tmp_path) -> None:
    path = tmp_path / "one.json"
    for content, said in (
        (None, "the file is not there"), ("{", "is not valid JSON"), ("[1]", "is not a JSON object"),
        ('{"a": NaN}', "NaN is not JSON"), ("[" * 100_000, "nested too deeply"), (b"\xff", "cannot be read"),
        ('{"a": ' + "9" * 5000 + "}", "cannot be read"),
    ):  # fmt: skip
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(InputError, match=said):
            read_json(path)
    path.write_text('{"seed": 1,\n "seed" 2}')
    with pytest.raises(InputError) as caught:
        read_json(path, RunIndex)
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


DOCS = Path(__file__).resolve().parents[2] / "docs" / "results.md"


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_column_has_the_type_that_its_field_says(table):
    kinds = {str: {"string"}, int: {"int32"}, bool: {"bool"}, float: {"double"}}
    hints = get_type_hints(table.record)
    schema = arrow_schema(table, Feature)
    assert tuple(schema.names) == table.record._fields
    for column in table.columns:
        assert str(schema.field(column.name).type) in kinds.get(hints[column.name], {"map<string, double>"})
    whole = arrow_schema(table, set(Feature) - {Feature.FINE_TIME})
    seconds = {column.name for column in table.columns if column.type == "int64"}
    assert {name for name in whole.names if whole.field(name).type != schema.field(name).type} == seconds


def test_every_feature_but_fine_time_brings_columns_and_no_other_columns_are_missing_without_it():
    for table in TABLES.values():
        assert {column.name for column in table.columns if not column.feature} == set(arrow_schema(table).names)
        brought = set(table.record._fields) - set(arrow_schema(table).names)
        assert brought <= set(table.record._field_defaults), "a row without the feature has a value all the same"
    features = {column.feature for table in TABLES.values() for column in table.columns}
    assert features == set(Feature) - {Feature.FINE_TIME} | {None}


def test_every_column_has_a_meaning_and_times_have_their_unit():
    for table in TABLES.values():
        for column in table.columns:
            assert column.meaning
            if column.name.endswith("_gpu_s"):
                assert column.unit == "GPU s"
            elif column.name.endswith("_s"):
                assert column.unit == "s"


def test_the_documentation_shows_the_schema_as_it_is():
    assert schema_markdown() in DOCS.read_text(encoding="utf-8")


def test_the_documentation_shows_the_metrics_as_they_are():
    assert metrics_markdown() in DOCS.read_text(encoding="utf-8")


def test_metric_names_carry_their_unit():
    for metric in METRICS.values():
        assert (metric.unit == "s") == metric.name.endswith("_s")
        assert metric.better in {"lower", "higher", ""}


def test_the_engine_fills_every_column_with_what_it_says():
    job = JobSpec("a", 5, 2, duration_s=60, tenant="t", user="u", status="Pass", queue="q", deadline_s=100)
    options = EngineOptions(restart_delay_s=10)
    records = run(registry.load("fifo")(), [job], cluster=Cluster.uniform(2, 4), options=options)
    assert records.jobs[0]._asdict() == {
        "job_id": "a", "application": "fixed-duration", "tenant": "t", "user": "u", "status": "Pass", "num_gpus": 2,
        "batch_size": 0, "submit_time_s": 5, "start_time_s": 5, "end_time_s": 75, "jct_s": 70, "held_s": 70,
        "queueing_s": 0, "restart_s": 10, "attained_gpu_s": 140, "restarts": 0, "attempts": 1, "failures": 0,
        "lost_s": 0, "lost_gpu_s": 0, "checkpoint_s": 0, "deadline_s": 100, "declined": False, "queue": "q",
    }  # fmt: skip
    starting, running = (interval._asdict() for interval in records.allocations)
    shared = {"neighbours": "", "gpu_share": 1, "relative_speed": 1, "levels_crossed": 0, "plan": "", "congestion": 0}
    assert running == {
        "job_id": "a", "start_s": 15, "end_s": 75, "gpus": 2, "nodes": 1, "placement": "0:2", "restarting": False,
        "local_bsz": 0, "accum_steps": 0, "batch_size": 0, "epoch": 0, "progress": 0, "rate": 1, "efficiency": 1,
        "throughput": 0, **shared,
    }  # fmt: skip
    assert (starting["start_s"], starting["end_s"], starting["restarting"], starting["rate"]) == (5, 15, True, 0)
    assert records.decisions[0]._asdict() == {
        "time_s": 5, "active_jobs": 1, "running_jobs": 1, "allocated_gpus": 2, "available_gpus": 8,
        "provisioned_nodes": 2, "started": 1, "stopped": 0, "moved": 0, "diagnostics": {}, "failed_nodes": 0,
        "node_failures": 0, "stranded_gpus": 0, "stranded_by_node_gpus": 0, "stranded_by_domain_gpus": 0,
        "fits_in_domain_gpus": 0,
        "provisioned_gpus": {},  # told only where nodes are of several makes
    }  # fmt: skip
