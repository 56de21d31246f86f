"""Results that were damaged, doctored or lie among files of others are noticed, read or refused; nobody's are lost."""

import contextlib
import copy
import fcntl
import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simsched.results.integrity import MANIFEST_FILE, faults, seal
from tests.campaigns import tries
from tests.campaigns.command import ended_well, here, prepared
from tests.campaigns.drawn import ODD

TRACE = "submit_time,num_gpus,duration,tenant,user\n" + "".join(
    f"{37 * i},{1 + i % 4},{100 + 53 * i},{'ab'[i % 2]},u{i % 3}\n" for i in range(12)
)
EXPERIMENT = """\
name: doctored
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: tiresias, params: {interval_s: 60}}]
seeds: 2
sweep: {engine.restart_delay_s: [5, 60]}
failures: {node_mtbf_h: 2, repair_median_h: 0.2}
finish_time_fairness: {}
published: {fifo: {jct_mean_h: 0.5}, tiresias: {jct_mean_h: 0.4}}
published_source: nowhere
report: {plots: false}
"""
FIGURES = (
    "bars", "jct-cdf", "over-time", "occupancy", "queue-over-time", "nodes-over-time", "sweep-restart_delay_s",
    "rho-cdf", "job-timeline",
)  # fmt: skip
TEXTS = ("", "x", "0:-1", "99:1", "0:999999999", "0:1 0:1", "a:b", "\u001b[2J", "=1+1", "y" * 5000)
CONTENTS = (b"", bytes(100), b"[]", b'"x"', b"null", b"[" * 100_000, b"\xff\xfe{}", b",,,,\n,,", b"1" * 10_000)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Make the run that every try copies, with fairness and failures of nodes."""
    return prepared(tmp_path_factory.mktemp("whole"), "doctored", EXPERIMENT, TRACE)


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "results" / "doctored", symlinks=True)


@tries(3, 100)
def test_a_flipped_bit_is_noticed(run, chance):
    cell = chance.choice(sorted((run / "cells").iterdir()))
    path = chance.choice(sorted(cell.iterdir()))
    content = bytearray(path.read_bytes())
    place, bit = chance.randrange(len(content)), chance.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(bytes(content))
    assert faults(cell), (path.name, place, bit)


@tries(2, 6)
def test_a_doctored_run_is_read_or_refused_with_a_line(run, chance):
    case = chance.choice(DOCTORINGS)(run, chance)
    if chance.random() < 0.7:  # mostly with renewed seals
        for manifest in sorted(run.glob(f"cells/*/{MANIFEST_FILE}")):
            with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):  # it was itself changed
                seal(manifest.parent, json.loads(manifest.read_text(encoding="utf-8")))
    folder, place = run.parents[1], str(run)
    ways = [("plot", place, "--figure", name) for name in FIGURES]
    drawing = chance.choice([*ways, ("plot", place, "--job", "3"), *[("report", place)] * 5])
    shown = [("show", place, *more) for more in ((), ("--by", "tenant"), ("--json",), ("--csv",))]
    for arguments in (*shown, ("compare", place), drawing, ("verify", place), ("clean", place)):
        done = ended_well(here(folder, *arguments, seconds=60), (case, arguments))
        assert "\x1b" not in done.stdout + done.stderr, (case, arguments)


def files_in(run, pattern):
    """List the files of a run, `run.json` as often as all others."""
    files = [path for path in sorted(run.rglob(pattern)) if path.is_file()]
    return files + [run / "run.json"] * (len(files) if pattern in ("*", "*.json") else 0)


def other_value(run, chance):
    """Replace a value of a JSON file by something odd, remove it, or list it twice."""
    path = chance.choice(files_in(run, "*.json"))
    content = json.loads(path.read_text(encoding="utf-8"))
    value, holder, key = content, None, None
    while isinstance(value, dict | list) and value and (key is None or chance.random() < 0.6):
        key = chance.choice(sorted(value) if isinstance(value, dict) else range(len(value)))
        holder, value = value, value[key]
    odd = chance.choice((*ODD, 10**30, "\ud800", "9" * 5000, "left out", "twice"))
    if odd == "left out":
        del holder[key]
    elif odd == "twice" and isinstance(holder, list):
        holder.append(copy.deepcopy(value))
    else:
        holder[key] = odd
    path.write_bytes(json.dumps(content).encode())
    return path.name, key, odd


def other_column(run, chance):
    """Put an odd value into a column of a table, or into one of its cells."""
    path = chance.choice(files_in(run, "*.parquet"))
    table = pq.read_table(path)
    column = chance.randrange(table.num_columns)
    field = table.schema.field(column)
    values = table.column(column).to_pylist()
    numbers = (-1, 0, 1, 10**9, -(10**9), 2**31 - 1, 2**62)
    floats = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e308, 1e-308)
    odd = chance.choice(floats if pa.types.is_floating(field.type) else numbers)
    if pa.types.is_string(field.type):
        odd = chance.choice(TEXTS)
    elif pa.types.is_map(field.type):
        odd = [("", chance.choice(floats))]
    for place in (
        range(len(values)) if chance.random() < 0.3 else chance.sample(range(len(values)), min(1, len(values)))
    ):
        values[place] = odd
    try:
        pq.write_table(table.set_column(column, field, pa.array(values, field.type)), path)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return other_kind(run, chance)
    return path.name, field.name, odd


def other_kind(run, chance):
    """Give a table another version, a column another type or name, or drop it, or some of the rows."""
    path = chance.choice(files_in(run, "*.parquet"))
    table = pq.read_table(path)
    column = chance.randrange(table.num_columns)
    field = table.schema.field(column)
    kind = chance.choice((pa.string(), pa.float64(), pa.int8(), pa.bool_(), pa.list_(pa.int32()), pa.timestamp("s")))
    version = chance.choice((b"0", b"99", b"\xff\xfe", b""))
    ways = {
        "dropped": lambda: table.remove_column(column),
        "renamed": lambda: table.set_column(column, pa.field("other", field.type), table.column(column)),
        "doubled": lambda: table.append_column(field, table.column(column)),
        "of another type": lambda: table.set_column(column, pa.field(field.name, kind), pa.nulls(len(table), kind)),
        "of another version": lambda: table.replace_schema_metadata({b"simsched_schema": version}),
        "no rows": lambda: table.slice(0, 0),
        "rows twice": lambda: pa.concat_tables([table, table]),
        "rows reversed": lambda: table.take(list(range(len(table)))[::-1]),
    }
    way = chance.choice(sorted(ways))
    pq.write_table(ways[way](), path)
    return path.name, field.name, way


def other_bytes(run, chance):
    """Cut a file, or fill it with something else."""
    path = chance.choice(files_in(run, "*"))
    content = path.read_bytes()
    path.write_bytes(chance.choice((content[: chance.randrange(len(content) + 1)], *CONTENTS)))
    return path.name, "other bytes"


def other_kind_of_file(run, chance):
    """Replace a file or folder by a folder, a link or nothing."""
    path = chance.choice([*files_in(run, "*"), *sorted((run / "cells").iterdir()), run / "cells"])
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    way = chance.choice(("gone", "folder", "link to itself", "link to nothing", "link elsewhere", "file"))
    if way == "folder":
        path.mkdir()
    elif way == "file":
        path.write_text("x")
    elif way != "gone":
        ends = {"link to itself": path, "link to nothing": run / "nothing", "link elsewhere": run.parents[1]}
        path.symlink_to(ends[way])
    return path.name, way


DOCTORINGS = (*[other_value] * 6, *[other_column] * 4, *[other_kind] * 3, other_bytes, other_kind_of_file)


@tries(3, 20)
def test_files_of_others_survive_a_cleaning(run, chance):
    folder, cells = run.parents[1], run / "cells"
    outside = folder / "outside"
    outside.mkdir()
    (outside / "photo.jpg").write_text("a photo")
    (outside / "manifest.json").write_text("{}")
    case = [chance.choice(STRANGERS)(cells, outside, chance) for _ in range(chance.randint(1, 3))]
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    theirs = {path: path.read_bytes() for path in files if outside in path.parents or path.name == "thesis.txt"}
    before = {path for path in cells.glob("*/manifest.json") if not path.parent.is_symlink()}
    command = chance.choice((("verify", str(run)), ("clean", "results"), ("clean", str(run))))
    sure = chance.choice(((), ("--yes",)))
    with (run / ".lock").open("a") as lock:
        if chance.random() < 0.2:
            fcntl.flock(lock, fcntl.LOCK_EX)
        ended_well(here(folder, *command, "--remove", *sure), case)
    assert [path for path, content in theirs.items() if not path.is_file() or path.read_bytes() != content] == [], case
    assert sure or before == {path for path in before if path.exists()}, case


def a_cell(cells, chance):
    return chance.choice(sorted(path for path in cells.iterdir() if path.is_dir() and not path.is_symlink()))


def spoilt(cell):
    for path in sorted(cell.glob("*.parquet"))[:1]:
        path.write_bytes(b"x")


def folder_beside(cells, outside, chance):
    name = chance.choice((".", "holidays", "0123456789abcdef", ".tmp-mine"))
    (cells / name).mkdir(exist_ok=True)
    (cells / name / "thesis.txt").write_text("a thesis")
    return f"a file in {name}"


def link_beside(cells, outside, chance):
    target = cells / chance.choice(("0123456789abcdef0", "photos", "fedcba9876543210"))
    if not target.is_symlink():
        target.symlink_to(outside)
    return "a link to a folder outside"


def link_for_a_cell(cells, outside, chance):
    cell = a_cell(cells, chance)
    shutil.rmtree(cell)
    cell.symlink_to(outside)
    return "a link in the place of a cell"


def damage_beside_notes(cells, outside, chance):
    cell = a_cell(cells, chance)
    if chance.random() < 0.4:
        (cell / "thesis.txt").write_text("notes")
    elif not (cell / "photo.jpg").exists():
        os.link(outside / "photo.jpg", cell / "photo.jpg")
    spoilt(cell)
    return "notes or a hard link in a damaged cell"


def damage(cells, outside, chance):
    spoilt(a_cell(cells, chance))
    return "a damaged cell"


def link_for_all_cells(cells, outside, chance):
    if not cells.is_symlink():
        shutil.move(cells, outside / "cells")
        cells.symlink_to(outside / "cells")
    return "a link in the place of all cells"


def no_index(cells, outside, chance):
    (cells.parent / "run.json").write_text(chance.choice(('{"cells": []}', "{}", "[]", "")))
    return "an index that names no cell"


STRANGERS = (
    folder_beside, link_beside, link_for_a_cell, damage_beside_notes, *[damage] * 3, link_for_all_cells,
    *[no_index] * 2,
)  # fmt: skip
