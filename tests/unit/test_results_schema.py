from pathlib import Path
from typing import get_type_hints

import pytest

from simsched.results.arrow_columns import arrow_schema
from simsched.results.metrics import METRICS, metrics_markdown
from simsched.results.rows import TABLES, Feature, schema_markdown

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
