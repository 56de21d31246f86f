"""What is wrong with the folder of a cell, seen quickly and in full."""

import json

import pytest

from simsched.errors import InputError
from simsched.results.integrity import (
    _SEAL,
    _SMALL,
    MANIFEST_FILE,
    _seal_of,
    check,
    faults,
    is_sealed,
    problems_of,
    quick_fault,
    seal,
)

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


def test_a_missing_file_or_a_changed_manifest_stops_the_reader(cell):
    manifest = json.loads((cell / MANIFEST_FILE).read_text())
    (cell / MANIFEST_FILE).write_text(json.dumps({**manifest, "seed": 2}))
    assert faults(cell)
    (cell / MANIFEST_FILE).write_text(json.dumps(manifest))
    (cell / "jobs.parquet").unlink()
    with pytest.raises(InputError, match="is damaged"):
        check(cell)


def resealed(cell, **changed):
    """Write a manifest that says something else of its cell, as if it had been written so."""
    manifest = json.loads((cell / MANIFEST_FILE).read_text()) | changed
    content = {name: value for name, value in manifest.items() if name != _SEAL}
    (cell / MANIFEST_FILE).write_text(json.dumps({**content, _SEAL: _seal_of(content)}))


def without_summary(cell):
    (cell / "summary.json").unlink()
    seal(cell, {"seed": 1})


def folder_for_table(cell):
    (cell / "jobs.parquet").unlink()
    (cell / "jobs.parquet").mkdir()


NAMELESS = {"bytes": 0, "sha256": ""}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda cell: (cell / MANIFEST_FILE).unlink(), "manifest.json is missing"),
        (lambda cell: (cell / MANIFEST_FILE).write_text("{"),
         "manifest.json cannot be read (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        (lambda cell: (cell / MANIFEST_FILE).write_text("[" * 100_000),
         "manifest.json cannot be read ("),
        (lambda cell: (cell / MANIFEST_FILE).write_text("[]"), "manifest.json is not a JSON object"),
        (lambda cell: (cell / MANIFEST_FILE).write_text("{}"), "manifest.json is not as it was written"),
        (lambda cell: resealed(cell, files=3), "manifest.json: files must be a mapping of keys to values, not 3"),
        (lambda cell: resealed(cell, files={"../x": NAMELESS}), "manifest.json: files"),
        (without_summary, "summary.json is not listed in manifest.json"),
        (lambda cell: (cell / "summary.json").write_text("[]"), "summary.json is not as it was written"),
        (lambda cell: (cell / "summary.json").unlink(), "summary.json is missing"),
        (lambda cell: (cell / "summary.json").write_text("{ }"), "summary.json has 3 bytes, not 2"),
        (folder_for_table, "jobs.parquet is no file"),
        (lambda cell: resealed(cell, files={"x" * 300: NAMELESS, "summary.json": NAMELESS}),
         f"{'x' * 300} cannot be read (File name too long)"),
    ],
)  # fmt: skip
def test_each_fault_is_told_with_its_file(cell, damage, said):
    damage(cell)
    assert faults(cell)[0].startswith(said)
    assert quick_fault(cell).startswith(said)
    with pytest.raises(InputError, match="is damaged"):
        check(cell)
    (first, *_) = problems_of({"fifo": cell})
    assert (first.where, first.message.endswith(" (cell fifo)")) == (str(cell), True)


def test_the_quick_check_reads_small_files_and_the_full_one_names_all_that_are_damaged(tmp_path):
    sizes = {"a": 0, "b": _SMALL, "c": _SMALL + 1}
    written = {"summary.json": b"{}"} | {name: bytes(size) for name, size in sizes.items()}
    seal(tmp_path, {}, written)
    assert faults(tmp_path) == []
    (tmp_path / "c").write_bytes(b"1" * sizes["c"])
    assert (quick_fault(tmp_path), faults(tmp_path)) == ("", ["c is not as it was written"])
    (tmp_path / "b").write_bytes(b"1" * sizes["b"])
    assert quick_fault(tmp_path) == "b is not as it was written"
    assert faults(tmp_path) == ["b is not as it was written", "c is not as it was written"]
