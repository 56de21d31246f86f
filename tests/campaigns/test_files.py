"""A file of every format with mutations of all kinds is read, or refused with a message."""

import gzip
import json
import os
import re

import pytest

from simsched.errors import InputError
from tests.campaigns import tries
from tests.campaigns.command import ended_well, here
from tests.campaigns.samples import BESIDE, EXPERIMENT, SAMPLES

CELLS = (
    "", " ", "x", "-1", "0", "1.5", "1e308", "-1e308", "1e999", "inf", "-inf", "nan", "NaT", "None", "null", "true",
    "9" * 400, "1_000", "٣", "=1+1", '"', "'", "a,b", "2024-03-01", "2024-13-45 99:99:99", "0001-01-01T00:00:00",
    "9999-12-31T23:59:59", "2024-03-01T10:00:00+14:00", "2024-03-01T10:00:00Z", "1677-09-21", "-9223372036854775808",
    "9223372036854775807", "18446744073709551616", "\x00", "\x1b[2J", "\u202e", "a" * 100_000, "../../x", "4294967296",
)  # fmt: skip
TIMES = (
    "0000-00-00 00:00:00", "9999-12-31 23:59:59", "1600-01-01 00:00:00", "2017-10-07 25:00:00", "07/10/2017 01:00",
    "2017-10-07T01:00:00+05:30", "2017-10-07 01:00:00.123456789", "2017-10-07 01:00:00 CET", "Unknown",
)  # fmt: skip
VALUES = (None, True, -1, 1.5, 10**30, float("inf"), "", "x", [], {}, [[]], {"a": 1}, "9999-12-31 00:00:00", "\ud800")
DEEP = 200_000


def text_of(content):
    return content.decode("utf-8", errors="replace")


def read(folder, sample, path):
    """Read a file as its sample says; return whether it was read and not refused."""
    for name, text in BESIDE.items():
        if name != path.name:
            (folder / name).write_text(text)
    (folder / "e.yaml").write_text(EXPERIMENT.format(file=path.name))
    if not sample.function:
        arguments = [one.format(file=path.name, experiment="e.yaml") for one in sample.command]
        return ended_well(here(folder, *arguments), sample.name).returncode == 0
    try:
        sample.function(path)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_sample_is_read_unchanged(tmp_path, sample):
    path = tmp_path / sample.file
    path.write_text(sample.text)
    assert read(tmp_path, sample, path)


@tries(10, 80)
def test_a_mutated_file_is_read_or_refused_with_a_message(tmp_path, chance):
    sample = chance.choice(SAMPLES)
    content, name = sample.text.encode(), sample.file
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = chance.choice(MUTATIONS)(content, chance)
    if chance.random() < 0.1:
        content, name = compressed(content, chance), f"{name}.gz"
    (tmp_path / name).write_bytes(content)
    read(tmp_path, sample, tmp_path / name)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "link to itself", "link to nothing", "device", "locked"])
@tries(1, 3)
def test_what_is_no_file_is_refused(tmp_path, chance, kind):
    sample = chance.choice(SAMPLES)
    path = tmp_path / sample.file
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
        path.symlink_to(path if kind == "link to itself" else tmp_path / "nothing")
    assert read(tmp_path, sample, path) == (kind == "locked" and os.geteuid() == 0)


def with_other_bytes(content, chance):
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 3, 30)) if changed else 0):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(content, chance):
    return content[: chance.randrange(len(content) + 1)]


def with_insertion(content, chance):
    place = chance.randrange(len(content) + 1)
    odd = chance.choice(
        (b"\x00", b'"', b"\n", b"\r", b",", b"\xff", b"\t" * 50, b"[" * 50, b"{}", b"|", b"\xe2\x80\xa8")
    )
    return content[:place] + odd * chance.choice((1, 1, 500)) + content[place:]


def replaced(content, chance, pattern, odd, counts):
    """Replace some of what a pattern matches."""
    text = text_of(content)
    matches = list(re.finditer(pattern, text))
    chosen = chance.sample(matches, min(len(matches), chance.choice(counts)))
    for match in sorted(chosen, key=lambda one: -one.start()):
        text = text[: match.start()] + chance.choice(odd) + text[match.end() :]
    return text.encode("utf-8", errors="replace")


def with_other_cells(content, chance):
    return replaced(content, chance, r"[^,|\t\n\"{}\[\] =]+", CELLS, (1, 1, 2, 5))


def with_other_times(content, chance):
    pattern = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)?"
    return replaced(content, chance, pattern, TIMES, (1, 2))


def with_other_value(content, chance):
    """Put an odd value into a JSON document, or into a cell if it is not JSON."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return with_other_cells(content, chance)
    holder, key = document, None
    while isinstance(holder, dict | list) and holder:
        key = chance.choice(sorted(holder) if isinstance(holder, dict) else range(len(holder)))
        if not isinstance(holder[key], dict | list) or not holder[key] or chance.random() < 0.3:
            break
        holder = holder[key]
    if key is not None:
        holder[key] = chance.choice(VALUES)
    return json.dumps(document).encode()


def with_other_columns(content, chance):
    """Remove, duplicate, rename, empty or move a column."""
    lines = text_of(content).split("\n")
    separator = max("|\t,", key=lines[0].count)
    rows = [line.split(separator) for line in lines]
    column = chance.randrange(len(rows[0]))
    way = chance.choice(("gone", "twice", "renamed", "empty", "moved"))
    for row in rows:
        if column < len(row):
            if way in ("gone", "moved"):
                cell = row.pop(column)
            if way in ("twice", "moved"):
                row.append(row[column] if way == "twice" else cell)
            if way == "empty" and row is not rows[0]:
                row[column] = ""
    if way == "renamed":
        rows[0][column] = chance.choice(("", "x", "Submit_Time", "duration", rows[0][0], " " + rows[0][column]))
    return "\n".join(map(separator.join, rows)).encode()


def with_other_lines(content, chance):
    lines = content.split(b"\n")
    ways = (
        lines + lines[1:], lines[:1], chance.sample(lines, len(lines)), [b"", b"", *lines], [b"# note", *lines],
        lines[1:], lines + lines[1:-1] * 2000,
    )  # fmt: skip
    return b"\n".join(chance.choice(ways))


def encoded_otherwise(content, chance):
    names = ("utf-16", "utf-32", "utf-8-sig", "latin-1", "cp037", "utf-7")
    return text_of(content).encode(chance.choice(names), errors="replace")


def with_other_line_ends(content, chance):
    return content.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\n", b"\x0b", b"")))


def nested(content, chance):
    ways = (b"[" * DEEP, b'{"a":' * DEEP, b'"' * DEEP, b"(" * DEEP, b"," * DEEP, content + b"[" * 1000)
    return chance.choice((*ways, b"[" * 40 + content + b"]" * 40))


def of_another_size(content, chance):
    return chance.choice((b"", b"\n", b" ", b"\xef\xbb\xbf", content * 200, b"1" * 10**6, b"x" * 10**6 + content))


def compressed(content, chance):
    packed = gzip.compress(content)
    ways = [packed, packed, packed[: chance.randrange(len(packed))], gzip.compress(packed), content, packed + b"x"]
    return gzip.compress(content + b"1,1,1\n" * 10_000_000) if chance.random() < 0.05 else chance.choice(ways)


MUTATIONS = (
    with_other_bytes, cut, with_insertion, *[with_other_cells] * 5, *[with_other_value] * 2, *[with_other_columns] * 2,
    with_other_lines, encoded_otherwise, with_other_line_ends, nested, of_another_size, *[with_other_times] * 2,
)  # fmt: skip
