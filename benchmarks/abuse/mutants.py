"""Input files with all kinds of mutations: each is read, or refused with a message that names it."""

import gzip
import json
import os
import random
import re
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.abuse.command import TooSlowError, here
from benchmarks.abuse.fuzz import LONGEST_S, fault
from benchmarks.abuse.samples import BESIDE, EXPERIMENT, SAMPLES, Sample
from benchmarks.abuse.tries import Ending
from simsched.errors import InputError

_CELLS = (
    "",
    " ",
    "x",
    "-1",
    "0",
    "1.5",
    "1e308",
    "-1e308",
    "1e999",
    "inf",
    "-inf",
    "nan",
    "NaT",
    "None",
    "null",
    "true",
    "9" * 400,
    "1_000",
    "٣",
    "=1+1",
    '"',
    "'",
    "a,b",
    "2024-03-01",
    "2024-13-45 99:99:99",
    "0001-01-01T00:00:00",
    "9999-12-31T23:59:59",
    "2024-03-01T10:00:00",
    "2024-03-01T10:00:00+14:00",
    "2024-03-01T10:00:00Z",
    "1677-09-21",
    "-9223372036854775808",
    "9223372036854775807",
    "18446744073709551616",
    "\x00",
    "\x1b[2J",
    "\u202e",
    "a" * 100_000,
    "../../x",
    "$x_$",
    "4294967296",
)
_ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "latin-1", "cp037", "utf-7")
_NESTED = 200_000

Mutation = Callable[[bytes, random.Random], bytes]


def prepare(folder: Path) -> None:
    """Read every sample unchanged: an attack with a bad sample would test nothing."""
    for sample in SAMPLES:
        ending = _read(folder, sample, sample.text.encode(), sample.file)
        if not ending.outcome.startswith("read"):
            raise ValueError(f"the sample of {sample.name} is not read: {ending}")


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Change a sample in one to three ways and read it."""
    sample = chance.choice(SAMPLES)
    content, name, told = sample.text.encode(), sample.file, []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        mutation = chance.choice(MUTATIONS)
        told.append(mutation.__name__.strip("_"))
        content = mutation(content, chance)
    if chance.random() < 0.1:
        told.append("compressed")
        content, name = _compressed(content, chance), f"{name}.gz"
    if chance.random() < 0.03:
        told.append("kind")
        ending = _of_a_kind(folder, sample, name, chance)
    else:
        ending = _read(folder, sample, content, name)
    if not ending.broken:
        return ending
    return Ending("", f"{sample.name}, {' and '.join(told)}: {ending.broken}: {content[:300]!r}")


def _read(folder: Path, sample: Sample, content: bytes, name: str) -> Ending:
    path = folder / name
    _clear(path)
    path.write_bytes(content)
    try:
        return _reading(folder, sample, path)
    finally:
        _clear(path)


def _reading(folder: Path, sample: Sample, path: Path) -> Ending:
    for name, text in BESIDE.items():
        if name != path.name:
            (folder / name).write_text(text)
    (folder / "e.yaml").write_text(EXPERIMENT.format(file=path.name))
    if sample.function:
        return _called(sample, path)
    arguments = [one.format(file=path.name, experiment="e.yaml") for one in sample.command]
    try:
        done = here(folder, *arguments, seconds=LONGEST_S)
    except TooSlowError:
        return Ending("", f"not done after {LONGEST_S} s")
    if wrong := fault(done):
        return Ending("", wrong)
    if done.returncode:
        return Ending("refused with a message")
    return Ending("read, with a line about what is not used" if done.stderr.strip() else "read")


def _called(sample: Sample, path: Path) -> Ending:
    assert sample.function
    try:
        sample.function(path)
    except InputError:
        return Ending("refused with a message")
    except Exception:  # noqa: BLE001 - whatever else is raised is what the attack looks for
        return Ending("", traceback.format_exc()[-600:])
    return Ending("read")


def _of_a_kind(folder: Path, sample: Sample, name: str, chance: random.Random) -> Ending:
    """Read something other than a file."""
    path = folder / name
    _clear(path)
    kind = chance.choice(("missing", "folder", "pipe", "link to itself", "link to nothing", "device", "locked"))
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "locked":
        path.write_text(sample.text)
        path.chmod(0)
    elif kind != "missing":
        path.symlink_to(path if kind == "link to itself" else folder / "nothing")
    try:
        ending = _reading(folder, sample, path)
    finally:
        _clear(path)
    readable = kind == "locked" and os.geteuid() == 0
    if not ending.broken and ending.outcome.startswith("read") and not readable:
        return Ending("", f"{kind}: {ending.outcome}")
    return Ending(ending.outcome, ending.broken and f"{kind}: {ending.broken}")


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 3, 30))):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _insert(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    odd = chance.choice(
        (b"\x00", b'"', b"\n", b"\r", b",", b"\xff", b"\t" * 50, b"[" * 50, b"{}", b"|", "\u2028".encode())
    )
    return content[:at] + odd * chance.choice((1, 1, 500)) + content[at:]


def _cell(content: bytes, chance: random.Random) -> bytes:
    """Put an odd value into a cell, or into many."""
    text = content.decode("utf-8", errors="replace")
    cells = list(re.finditer(r"[^,|\t\n\"{}\[\] =]+", text))
    for found in sorted(
        chance.sample(cells, min(len(cells), chance.choice((1, 1, 2, 5)))), key=lambda one: -one.start()
    ):
        text = text[: found.start()] + chance.choice(_CELLS) + text[found.end() :]
    return text.encode("utf-8", errors="replace")


def _value(content: bytes, chance: random.Random) -> bytes:
    """Put an odd value into a JSON document, or into a cell if it is not JSON."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return _cell(content, chance)
    where, key = document, None
    while isinstance(where, dict | list) and where:
        key = chance.choice(sorted(where) if isinstance(where, dict) else range(len(where)))
        if not isinstance(where[key], dict | list) or not where[key] or chance.random() < 0.3:
            break
        where = where[key]
    if key is not None:
        odd = (
            None,
            True,
            -1,
            1.5,
            10**30,
            float("inf"),
            "",
            "x",
            [],
            {},
            [[]],
            {"a": 1},
            "9999-12-31 00:00:00",
            "\ud800",
        )
        where[key] = chance.choice(odd)
    return json.dumps(document).encode()


def _column(content: bytes, chance: random.Random) -> bytes:
    """Remove, duplicate, rename or move a column."""
    lines = content.decode("utf-8", errors="replace").split("\n")
    separator = max("|\t,", key=lines[0].count)
    rows = [line.split(separator) for line in lines]
    at = chance.randrange(len(rows[0]))
    way = chance.choice(("gone", "twice", "renamed", "header only", "empty", "moved"))
    for number, row in enumerate(rows):
        if at >= len(row):
            continue
        if way == "gone":
            del row[at]
        elif way == "twice":
            row.append(row[at])
        elif way == "moved":
            row.append(row.pop(at))
        elif way == "empty" and number:
            row[at] = ""
        elif way in ("renamed", "header only") and not number:
            row[at] = chance.choice(("", "x", "Submit_Time", "duration", rows[0][0], " " + row[at]))
    return "\n".join(map(separator.join, rows)).encode()


def _rows(content: bytes, chance: random.Random) -> bytes:
    """Duplicate, empty, drop or shuffle lines."""
    lines = content.split(b"\n")
    way = chance.choice(("twice", "none", "shuffled", "blank", "comment", "first", "many"))
    if way == "shuffled":
        chance.shuffle(lines)
    changed = {
        "twice": lines + lines[1:],
        "none": lines[:1],
        "blank": [b"", b"", *lines],
        "comment": [b"# note", *lines],
        "first": lines[1:],
        "many": lines + lines[1:-1] * 2000,
    }
    return b"\n".join(changed.get(way, lines))


def _encoding(content: bytes, chance: random.Random) -> bytes:
    return content.decode("utf-8", errors="replace").encode(chance.choice(_ENCODINGS), errors="replace")


def _line_ends(content: bytes, chance: random.Random) -> bytes:
    return content.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\n", b"\x0b", b"")))


def _nesting(content: bytes, chance: random.Random) -> bytes:
    ways = (
        b"[" * _NESTED,
        b'{"a":' * _NESTED,
        b"[" * 40 + content + b"]" * 40,
        b'"' * _NESTED,
        b"(" * _NESTED,
        b"," * _NESTED,
    )
    return chance.choice((*ways, content + b"[" * 1000))


def _size(content: bytes, chance: random.Random) -> bytes:
    return chance.choice(
        (b"", b"\n", b" ", b"\xef\xbb\xbf", content * 200, b"1" * 1_000_000, b"x" * 1_000_000 + content)
    )


def _dates(content: bytes, chance: random.Random) -> bytes:
    """Change times: other years, offsets, precisions."""
    text = content.decode("utf-8", errors="replace")
    found = list(re.finditer(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)?", text))
    odd = (
        "0000-00-00 00:00:00",
        "9999-12-31 23:59:59",
        "1600-01-01 00:00:00",
        "2017-10-07 25:00:00",
        "07/10/2017 01:00",
        "2017-10-07",
        "2017-10-07T01:00:00+05:30",
        "2017-10-07 01:00:00.123456789",
        "2017-10-07 01:00:00 CET",
        "Unknown",
    )
    for one in reversed(chance.sample(found, min(len(found), chance.choice((1, 2))))):
        text = text[: one.start()] + chance.choice(odd) + text[one.end() :]
    return text.encode()


def _compressed(content: bytes, chance: random.Random) -> bytes:
    packed = gzip.compress(content)
    ways = (packed, packed, packed[: chance.randrange(len(packed))], gzip.compress(packed), content, packed + b"x")
    return chance.choice(
        (*ways, gzip.compress(content + b"1,1,1\n" * 10_000_000) if chance.random() < 0.05 else packed)
    )


MUTATIONS: tuple[Mutation, ...] = (
    _bytes,
    _cut,
    _insert,
    *[_cell] * 5,
    *[_value] * 2,
    *[_column] * 2,
    _rows,
    _encoding,
    _line_ends,
    _nesting,
    _size,
    *[_dates] * 2,
)
