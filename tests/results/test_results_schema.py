from pathlib import Path
from typing import get_type_hints

import pytest

from simsched.engine.options import EngineOptions
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.policy import registry
from simsched.results.arrow import arrow_schema
from simsched.results.metrics import METRICS, metrics_markdown
from simsched.results.rows import TABLES, Feature, schema_markdown
from simsched.testing.builders import run

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
