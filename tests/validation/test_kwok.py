"""Measured runs of Kueue on simulated nodes, held against runs of their manifests (data: MSSkowron/knavigator)."""

from __future__ import annotations

import pytest

from simsched.reading import read_json
from tests.campaigns import long
from tests.validation import kwok


@pytest.mark.parametrize("name", ["s1-f1", "s1-t3", *(pytest.param(name, marks=long) for name in (
    "s1-f1-guarantees", "s1-f2", "s1-f2-guarantees", "s1-f3", "s1-f4", "s1-t1", "s1-v1-300-300", "s1-v1-500-500",
    "s1-v2-300-300", "s1-v2-500-500", "s1-v3-300-100",
))])  # fmt: skip
def test_a_measured_run_comes_out_within_the_bars(shared, name):
    rows = kwok.rows_of(read_json(shared / "kwok" / f"{name}.json"))
    assert any(row.most is not None for row in rows)
    assert [str(row) for row in rows if row.off] == []


def test_a_metric_outside_its_bar_and_files_that_are_none_are_refused(tmp_path, capsys):
    assert kwok.Row("wait", 100, 106, 5).off
    assert not kwok.Row("wait", 100, 95, 5).off
    assert kwok.main([]) == 1
    file = tmp_path / "other.json"
    file.write_text("{}")
    assert kwok.main([str(file)]) == 2
    assert "is no measured scenario" in capsys.readouterr().err
