"""Folders of results that somebody has doctored, or that are of something else: each is read, or refused in a line."""

import contextlib
import copy
import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.abuse.command import TooSlowError, here, prepared
from benchmarks.abuse.fuzz import fault
from benchmarks.abuse.tries import Ending
from simsched.results import MANIFEST_FILE, seal

_LONGEST_S = 60
_TRACE = "submit_time,num_gpus,duration,tenant,user\n" + "".join(
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
PAGE = """\
<!-- simsched: figures doctored jct_mean_h makespan_h -->
<!-- simsched: end -->
<!-- simsched: ratios doctored jct_mean_h -->
<!-- simsched: end -->
"""
#: What is put in the place of a value.
ODD: tuple[Any, ...] = (
    None, True, "", "x", "nan", -1, 0, 0.5, 10**30, -(10**30), 1e308, float("nan"), float("inf"), [], {}, [None],
    [[]], {"a": {"b": [None]}}, {"": 1}, "../../..", "/dev/null", "\ud800", "\u001b[2J", [[[[[[]]]]]], "9" * 5000,
)  # fmt: skip
FIGURES = (
    "bars", "jct-cdf", "over-time", "occupancy", "queue-over-time", "nodes-over-time", "sweep-restart_delay_s",
    "rho-cdf", "job-timeline",
)  # fmt: skip
_NUMBERS = (-1, 0, 1, 10**9, -(10**9), 2**31 - 1, 2**62)
_FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e308, 1e-308)
_TEXTS = ("", "x", "0:-1", "99:1", "0:999999999", "0:1 0:1", "a:b", "\u001b[2J", "=1+1", "y" * 5000)
_KINDS: tuple[pa.DataType, ...] = (
    pa.string(), pa.float64(), pa.int8(), pa.bool_(), pa.list_(pa.int32()), pa.null(), pa.timestamp("s"),
)  # fmt: skip

#: What a mutation does to a run, and how it is told.
Mutation = Callable[[Path, random.Random], str]


def prepare(folder: Path) -> None:
    """Make the run that is doctored, with fairness and losses of nodes."""
    prepared(folder, "doctor", EXPERIMENT, "whole", _TRACE)


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Doctor one thing of a copy of the run, and have it read by every command."""
    victim = folder / "tried" / "doctored"
    shutil.rmtree(victim.parent, ignore_errors=True)
    shutil.copytree(folder / "whole" / "doctored", victim, symlinks=True)
    told = doctored(victim, chance)
    before = _outside(folder)
    for name, arguments in commands(victim.parent, chance).items():
        if wrong := _wrong(folder, arguments):
            return Ending("", f"{name} of {told}: {wrong}")
    if _outside(folder) != before:
        return Ending("", f"{told}: something beside the run was changed")
    return Ending("as it should")


def commands(results: Path, chance: random.Random) -> dict[str, tuple[str, ...]]:
    """Return a command line for each way in which a folder of results is read, drawing being tried in one of them."""
    (results / "page.md").write_text(PAGE)
    at, page = str(results / "doctored"), str(results / "page.md")
    drawing = chance.choice([*[("plot", at, "--figure", name) for name in FIGURES], ("plot", at, "--job", "3"),
                             *[("report", at)] * 5])  # fmt: skip
    return {
        "show": ("show", at),
        "show --by": ("show", at, "--by", "tenant"),
        "show --json": ("show", at, "--json"),
        "show --csv": ("show", at, "--csv"),
        "compare": ("compare", at),
        "compare-runs": ("compare-runs", at, at),
        "verdicts": ("verdicts", str(results)),
        "verdicts --page": ("verdicts", str(results), "--page", page),
        " ".join((drawing[0], *drawing[2:])): drawing,
        "verify": ("verify", at),
        "clean": ("clean", at),
    }


def _wrong(folder: Path, arguments: tuple[str, ...]) -> str:
    """Run a command; returns what is wrong with how it ended, empty where nothing is."""
    try:
        done = here(folder, *arguments, seconds=_LONGEST_S)
    except TooSlowError:
        return f"not done after {_LONGEST_S} s of CPU"
    return fault(done) or ("a name wrote to the terminal" if "\x1b" in done.stdout + done.stderr else "")


def _outside(folder: Path) -> dict[str, int]:
    """Return what is in a folder beside the run that is doctored."""
    return {str(path): path.lstat().st_size for path in sorted(folder.glob("*")) if path.name != "tried"}


def doctored(victim: Path, chance: random.Random) -> str:
    """Change one thing in a run, the seals renewed mostly; returns what was changed."""
    told = chance.choice(MUTATIONS)(victim, chance)
    if chance.random() < 0.7:
        for manifest in sorted(victim.glob(f"cells/*/{MANIFEST_FILE}")):
            with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):  # it was doctored itself
                seal(manifest.parent, json.loads(manifest.read_text(encoding="utf-8")))
    return told


def _json_value(victim: Path, chance: random.Random) -> str:
    """Put something odd in the place of a value of a JSON file, or leave it out."""
    path = chance.choice(_files(victim, "*.json"))
    content = json.loads(path.read_text(encoding="utf-8"))
    where = chance.choice(list(_places(content)))
    odd = chance.choice((*ODD, "left out", "twice"))
    changed = _changed(content, where, odd)
    path.write_bytes(json.dumps(changed).encode())
    return f"{_name(victim, path)}: {'.'.join(map(str, where))} = {str(odd)[:40]!r}"


def _places(content: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the places in a JSON file, those near its top as often as all below them."""
    found = [place] if place else []
    inner = content.items() if isinstance(content, Mapping) else enumerate(content) if isinstance(content, list) else ()
    for key, value in inner:
        found += _places(value, (*place, key))
    return found + [one for one in found if len(one) == 1] * (0 if place else 5)


def _changed(content: Any, where: tuple[Any, ...], odd: Any) -> Any:
    made = copy.deepcopy(content)
    held = made
    for key in where[:-1]:
        held = held[key]
    if odd == "left out":
        del held[where[-1]]
    elif odd == "twice" and isinstance(held, list):
        held.append(held[where[-1]])
    else:
        held[where[-1]] = odd
    return made


def _column_value(victim: Path, chance: random.Random) -> str:
    """Put an odd value into a column of a table."""
    path, table = _table(victim, chance)
    at = chance.randrange(table.num_columns)
    field = table.schema.field(at)
    values = table.column(at).to_pylist()
    odd: Any = None
    if pa.types.is_integer(field.type):
        odd = chance.choice(_NUMBERS)
    elif pa.types.is_floating(field.type):
        odd = chance.choice(_FLOATS)
    elif pa.types.is_string(field.type):
        odd = chance.choice(_TEXTS)
    elif pa.types.is_map(field.type):
        odd = [("", chance.choice(_FLOATS))]
    elif pa.types.is_boolean(field.type):
        odd = chance.random() < 0.5
    everywhere = chance.random() < 0.3
    chosen = range(len(values)) if everywhere else [chance.randrange(len(values))] if values else []
    for place in chosen:
        values[place] = odd
    if chance.random() < 0.15:
        values, field, odd = [None] * len(values), field.with_nullable(True), "null"
    try:
        column = pa.array(values, field.type)
    except (pa.ArrowInvalid, OverflowError):
        return _column_kind(victim, chance)
    _write(path, table.set_column(at, field, column))
    return f"{_name(victim, path)}: {field.name} = {str(odd)[:40]!r}{' everywhere' if everywhere else ''}"


def _column_kind(victim: Path, chance: random.Random) -> str:
    """Give a column another type, another name, or drop it."""
    path, table = _table(victim, chance)
    at = chance.randrange(table.num_columns)
    field = table.schema.field(at)
    way = chance.choice(("dropped", "renamed", "doubled", *map(str, _KINDS)))
    if way == "dropped":
        made = table.remove_column(at)
    elif way == "renamed":
        made = table.set_column(at, pa.field("other", field.type), table.column(at))
    elif way == "doubled":
        made = table.append_column(field, table.column(at))
    else:
        kind = next(kind for kind in _KINDS if str(kind) == way)
        made = table.set_column(at, pa.field(field.name, kind), pa.nulls(table.num_rows, kind))
    _write(path, made)
    return f"{_name(victim, path)}: {field.name} {way}"


def _rows(victim: Path, chance: random.Random) -> str:
    """Take rows of a table away, or give it some twice."""
    path, table = _table(victim, chance)
    way = chance.choice(("none", "twice", "one", "reversed"))
    count = table.num_rows
    kept = {"none": [], "twice": [*range(count)] * 2, "one": [0] if count else [], "reversed": [*range(count)][::-1]}
    _write(path, table.take(pa.array(kept[way], pa.int64())))
    return f"{_name(victim, path)}: rows {way}"


def _version(victim: Path, chance: random.Random) -> str:
    """Say that a table is of another version of the schema, or of none."""
    path, table = _table(victim, chance)
    version = chance.choice((b"0", b"99", b"\xff\xfe", b""))
    _write(path, table.replace_schema_metadata({b"simsched_schema": version} if version else None))
    return f"{_name(victim, path)}: version {version!r}"


def _bytes(victim: Path, chance: random.Random) -> str:
    """Cut a file, empty it, or fill it with something else."""
    path = chance.choice(_files(victim, "*"))
    held = path.read_bytes()
    ways = {
        "cut": held[: chance.randrange(len(held) + 1)], "empty": b"", "zeros": bytes(100), "a list": b"[]",
        "a text": b'"x"', "null": b"null", "deep": b"[" * 100_000, "not UTF-8": b"\xff\xfe{}", "commas": b",,,,\n,,",
        "number": b"1" * 10_000, "page": b"<html></html>",
    }  # fmt: skip
    way = chance.choice(sorted(ways))
    path.write_bytes(ways[way])
    return f"{_name(victim, path)}: {way}"


def _kind_of_file(victim: Path, chance: random.Random) -> str:
    """Put a folder, a link or nothing in the place of a file or folder."""
    path = chance.choice([*_files(victim, "*"), *sorted((victim / "cells").iterdir()), victim / "cells"])
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    way = chance.choice(("gone", "folder", "link to itself", "link to nothing", "link elsewhere", "file"))
    if way == "folder":
        path.mkdir()
    elif way == "file":
        path.write_text("x")
    elif way != "gone":
        ends = {"link to itself": path, "link to nothing": victim / "nothing", "link elsewhere": victim.parents[1]}
        path.symlink_to(ends[way])
    return f"{_name(victim, path)}: {way}"


def _sheet(victim: Path, chance: random.Random) -> str:
    """Put something odd into a cell of a CSV file beside the tables."""
    path = chance.choice(_files(victim, "*.csv"))
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    row = chance.choice(lines)
    at = chance.randrange(len(row))
    row[at] = chance.choice(("", "x", "nan", "-1", "inf", "1e308", '"', "0", "9" * 400))
    path.write_text("\n".join(map(",".join, lines)) + "\n", encoding="utf-8")
    return f"{_name(victim, path)}: a cell of column {at}, line {lines.index(row) + 1} = {row[at][:20]!r}"


MUTATIONS: tuple[Mutation, ...] = (
    *[_json_value] * 6, *[_column_value] * 4, _column_kind, _rows, _version, _bytes, _kind_of_file, _sheet,
)  # fmt: skip


def _files(victim: Path, pattern: str) -> list[Path]:
    """List the files of a run, `run.json` as often as all others."""
    found = [path for path in sorted(victim.rglob(pattern)) if path.is_file()]
    return found + [victim / "run.json"] * (len(found) if pattern in ("*", "*.json") else 0)


def _table(victim: Path, chance: random.Random) -> tuple[Path, pa.Table]:
    path = chance.choice(_files(victim, "*.parquet"))
    return path, pq.read_table(path)


def _write(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path)


def _name(victim: Path, path: Path) -> str:
    return path.relative_to(victim).as_posix()
