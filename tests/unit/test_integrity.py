"""What is wrong with the folder of a cell, seen quickly and in full."""

import json

import pytest

from simsched.errors import InputError
from simsched.results.integrity import MANIFEST_FILE, check, faults, is_sealed, quick_fault, seal

LARGE = bytes(1 << 20)  # small files are always read


@pytest.fixture
def cell(tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "jobs.parquet").write_bytes(LARGE)
    seal(tmp_path, {"seed": 1})
    return tmp_path


def test_a_sealed_cell_has_no_fault(cell):
    assert faults(cell) == []
    assert quick_fault(cell) == ""
    check(cell)
    manifest = json.loads((cell / MANIFEST_FILE).read_text())
    assert is_sealed(manifest)
    assert manifest["files"]["jobs.parquet"]["bytes"] == len(LARGE)
    assert not is_sealed({"seed": 1})


def test_a_changed_byte_is_found_by_reading_and_a_changed_size_at_once(cell):
    (cell / "jobs.parquet").write_bytes(LARGE[:-1] + b"1")
    assert quick_fault(cell) == ""
    assert len(faults(cell)) == 1
    assert "jobs.parquet" in faults(cell)[0]
    (cell / "jobs.parquet").write_bytes(b"01234")
    assert "jobs.parquet" in quick_fault(cell)


def test_a_missing_file_or_a_changed_manifest_stops_the_reader(cell):
    manifest = json.loads((cell / MANIFEST_FILE).read_text())
    (cell / MANIFEST_FILE).write_text(json.dumps({**manifest, "seed": 2}))
    assert faults(cell)
    (cell / MANIFEST_FILE).write_text(json.dumps(manifest))
    (cell / "jobs.parquet").unlink()
    with pytest.raises(InputError, match="is damaged"):
        check(cell)
