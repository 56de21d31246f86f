from pathlib import Path
from typing import get_type_hints

import pytest

from simsched.engine.records import AllocationRecord, DecisionRecord, JobRecord, OutageRecord
from simsched.results.metrics import METRICS, metrics_markdown
from simsched.results.schema import TABLES, schema_markdown

RECORDS = [
    ("jobs", JobRecord), ("allocations", AllocationRecord), ("rounds", DecisionRecord), ("outages", OutageRecord),
]  # fmt: skip
DOCS = Path(__file__).resolve().parents[2] / "docs" / "results.md"


@pytest.mark.parametrize(("table", "record"), RECORDS)
def test_columns_are_the_fields_of_the_engines_records_in_order(table, record):
    assert tuple(column.name for column in TABLES[table].columns) == record._fields


@pytest.mark.parametrize(("table", "record"), RECORDS)
def test_arrow_types_fit_the_annotations_of_the_records(table, record):
    kinds = {str: {"string"}, int: {"int32", "int64"}, bool: {"bool"}, float: {"double", "int64"}}
    hints = get_type_hints(record)
    features = ("sharing", "fine-time", "failures", "deadlines", "queues", "topology", "fragmentation", "makes")
    schema = TABLES[table].arrow(features)
    for column in TABLES[table].columns:
        allowed = kinds.get(hints[column.name], {"map<string, double>"})
        assert str(schema.field(column.name).type) in allowed, column.name
        assert column.type == schema.field(column.name).type or str(column.type) == "int64"


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
