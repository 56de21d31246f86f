"""Reads users' files of bounded size; every problem is an `InputError` with the file's name and line, if any."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import stat
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn, TextIO, cast

from simsched.errors import InputError, input_error, nearest, tell

#: The most decompressed bytes of a table read by row, and of a document read whole.
MOST_BYTES = 8 << 30
MOST_DOCUMENT_BYTES = 256 << 20
#: The most expansion of a compressed file, unchecked up to `FREE_BYTES`.
MOST_EXPANSION = 100
FREE_BYTES = 16 << 20
#: The most columns of a table, levels of a document, and digits of an integer in one.
MOST_COLUMNS = 1000
MOST_DEPTH = 50
MOST_DIGITS = 300
#: The largest whole number that is exact as a float.
MOST_WHOLE = 2**53
#: Checking each object of a large log would take half as long as parsing it.
MOST_LOOKED_INTO = 4 << 20

#: The years of times, such that seconds since 1970 and any offset from UTC stay in Python's range.
_FIRST_YEAR, _LAST_YEAR = 1970, 2286
_CHUNK = 1 << 20
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
#: Half a character (a lone surrogate), which no file can hold, and how JSON may write one.
HALF_CHARACTER, _HALF_WRITTEN = re.compile(r"[\ud800-\udfff]"), re.compile(r"\\u[dD][89a-fA-F]")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DAMAGE = (OSError, EOFError, zlib.error, UnicodeDecodeError)
#: A CSV row: its line and its cells by column.
Record = tuple[int, Mapping[str, str]]


class _Bounded(io.RawIOBase):
    """A stream that raises `InputError` after `most` bytes."""

    def __init__(self, stream: BinaryIO, path: Path, most: int) -> None:
        self._stream, self._path, self._left, self._most = stream, path, most, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._path, self._most)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_bytes(path: Path, most: int = MOST_BYTES) -> Iterator[BinaryIO]:
    """Open a file (plain or .gz) to read up to `most` bytes of content.

    Raises `InputError` for missing, special, damaged or too large files, also when reading in the block.
    """
    size = _size(path)
    allowed = max(FREE_BYTES, MOST_EXPANSION * size)
    try:
        with path.open("rb") as plain:
            if path.suffix != ".gz":
                if size > most:
                    raise _too_large(path, most)
                yield plain
                return
            with gzip.open(plain, "rb") as inside:
                bounded = _Bounded(cast("BinaryIO", inside), path, min(most, allowed))
                yield cast("BinaryIO", io.BufferedReader(bounded, _CHUNK))
    except _DAMAGE as error:
        raise unreadable(path, error) from None


@contextmanager
def open_text(path: Path, most: int = MOST_BYTES, newline: str = "") -> Iterator[TextIO]:
    """Open a UTF-8 text file (plain or .gz) as `open_bytes` does, skipping a byte order mark."""
    with open_bytes(path, most) as stream:
        yield io.TextIOWrapper(cast("IO[bytes]", stream), encoding="utf-8-sig", newline=newline)


def read_text(path: Path, most: int = MOST_DOCUMENT_BYTES) -> str:
    """Return a UTF-8 text file (plain or .gz) with Unix line ends; raises as `open_bytes` does."""
    with open_text(path, most) as stream:
        return stream.read().replace("\r\n", "\n")


def first_lines(path: Path, count: int = 100, size: int = 65536) -> list[str]:
    """Return the first lines of a text file (plain or .gz), enough to detect its format."""
    with open_bytes(path) as stream:
        return stream.read(size).decode("utf-8-sig", errors="replace").splitlines()[:count]


def read_json(path: Path, remedy: str = "fetch or write the file again") -> Any:
    """Return the content of a JSON file (plain or .gz).

    Raises `InputError` for invalid JSON, nesting beyond `MOST_DEPTH`, duplicate keys, and numbers that are not finite
    or exceed `MOST_DIGITS` digits; beyond `MOST_LOOKED_INTO` characters only the parser bounds depth and keys.
    """
    return parse_json(read_text(path), path, remedy)


def parse_json(text: str, where: object, remedy: str = "") -> Any:
    """Return the content of a JSON text, called `where` in messages; raises as `read_json` does."""
    deep = input_error(where, f"is nested deeper than {MOST_DEPTH} levels", remedy)
    small = len(text) <= MOST_LOOKED_INTO
    once = _once if small else None
    try:
        value = json.loads(
            text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole, object_pairs_hook=once
        )
    except json.JSONDecodeError as error:
        message = f"is not JSON, or cut short or damaged at column {error.colno}: {error.msg}"
        raise input_error(where, message, remedy, line=error.lineno) from None
    except RecursionError:
        raise deep from None
    except ValueError as error:
        raise input_error(where, str(error), "mend the file") from None
    if small and _depth(value) > MOST_DEPTH:
        raise deep
    if _HALF_WRITTEN.search(text) and HALF_CHARACTER.search(json.dumps(value, ensure_ascii=False)):
        raise input_error(where, "holds half a character (a lone surrogate)", "write the whole character")
    return value


def _depth(value: object) -> int:
    """Count the nesting levels, up to one more than allowed."""
    levels, level = 0, [value]
    while levels <= MOST_DEPTH:
        inner = [one for one in level if isinstance(one, dict | list)]
        if not inner:
            break
        level = [part for one in inner for part in _parts(one)]
        levels += 1
    return levels


def _parts(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"holds {text}, which is not a finite number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"holds {text:.40}, which is not a finite number")
    return value


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"holds the number {text:.40}, which has more than {MOST_DIGITS} digits")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"gives the key '{twice:.40}' twice in one object")
    return found


def read_records(path: Path, needed: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Record]:
    """Yield line and cells of each row of a CSV file (plain or .gz) with the `needed` columns.

    Reports columns neither needed nor optional. Raises `InputError` as `records` and `open_bytes` do.
    """
    with open_text(path, MOST_DOCUMENT_BYTES) as stream:
        yield from records(stream, str(path), needed, optional)


def records(lines: Iterable[str], where: str, needed: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Record]:
    """Yield line and cells of each row of CSV lines as `read_records` does; `where` names them in messages."""
    rows = csv.reader(lines, strict=True)
    header: list[str] = []
    try:
        for row in rows:
            if not header:
                header = [name.strip() for name in row]
                check_header(where, header, needed)
                unused(where, header, (*needed, *optional))
            elif row:
                if len(row) != len(header):
                    raise other_width(where, len(row), len(header), rows.line_num)
                yield rows.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise input_error(where, f"is no CSV from here on: {error}", "correct the line", line=rows.line_num) from None
    if not header:
        raise input_error(where, "the file is empty", f"begin with the line {','.join(needed)}")


def number(text: object, what: str, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Return the finite number that a text writes in ASCII digits, from `least` to `most`.

    Raises `ValueError` that names the column or key `what`, the text, and what to give instead.
    """
    written = str(text).strip()
    value = float(written) if len(written) <= MOST_DIGITS and _NUMBER.fullmatch(written) else math.nan
    if not (math.isfinite(value) and least <= value <= most):
        raise ValueError(f"{what} is '{written:.40}'; give a number{_range(least, most)}")
    return value


def whole_number(text: object, what: str, *, least: int = 0, most: int = MOST_WHOLE) -> int:
    """Return the whole number that a text writes in ASCII digits, from `least` to `most`; raises as `number`."""
    written = str(text).strip()
    if len(written) <= MOST_DIGITS and _WHOLE.fullmatch(written) and least <= (value := int(written)) <= most:
        return value
    raise ValueError(f"{what} is '{written:.40}'; give a whole number{_range(least, most)}")


def moment(text: object, what: str) -> datetime:
    """Return the time that a text writes as in 2026-01-31T12:00:00Z, from 1970 to 2286; raises as `number`."""
    written = str(text).strip()
    with suppress(ValueError):
        if _FIRST_YEAR <= (found := datetime.fromisoformat(written)).year <= _LAST_YEAR:
            return found
    raise ValueError(f"{what} is '{written:.40}'; write a time as in 2026-01-31T12:00:00Z")


def _range(least: float, most: float) -> str:
    low = f" from {least:.16g}" if math.isfinite(least) else ""
    return low + (f" up to {most:.16g}" if math.isfinite(most) else "")


def other_width(where: object, fields: int, columns: int, line: int) -> InputError:
    """Return the error of a row whose width differs from the header's."""
    message = f"has {fields} fields, and the header has {columns}"
    return input_error(where, message, "quote fields that hold commas, or correct the line", line=line)


def check_header(where: object, header: Sequence[str], needed: Sequence[str] = (), line: int = 1) -> None:
    """Raise `InputError` for a header with too many columns, duplicates, or without a needed one."""
    if len(header) > MOST_COLUMNS:
        message = f"has {len(header)} columns, and {MOST_COLUMNS} is the most"
        raise input_error(where, message, "leave out those that you do not need", line=line)
    known: dict[str, int] = {}
    for place, name in enumerate(header, 1):
        if name in known:
            message = f"column '{name:.40}' stands twice in the header, as number {known[name]} and {place}"
            raise input_error(where, message, "keep one of them, or give it another name", line=line)
        known[name] = place
    missing = [name for name in needed if name not in known]
    if missing:
        named = ", ".join(f"'{name}'" for name in missing)
        are = "columns {} are" if len(missing) > 1 else "column {} is"
        remedy = f"{nearest(missing[0], header)} (needed: {', '.join(needed)})"
        raise input_error(where, f"{are.format(named)} missing", remedy, line=line)


def unused(
    where: object, names: Iterable[str], used: Collection[str], idle: Collection[str] = (), what: str = "column"
) -> tuple[str, ...]:
    """Return a file's unused columns or keys, reporting those unknown to its format; `idle` are known."""
    left = [name for name in names if name not in used]
    unknown = [name for name in left if name not in idle]
    if unknown:
        shown = ", ".join(f"'{name:.40}'" for name in unknown[:_MOST_NAMED])
        more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
        several = len(unknown) > 1
        message = f"{what}{'s' * several} {shown}{more} {'are' if several else 'is'} not known here and not used"
        tell(where, message, _meant(unknown, [name for name in used if name not in names]))
    return tuple(left)


_MOST_NAMED = 8


def _meant(unknown: Sequence[str], known: Sequence[str]) -> str:
    near = (nearest(name, known) for name in unknown)
    return next((remedy for remedy in near if remedy.startswith("did")), "")


def unreadable(path: Path, error: BaseException) -> InputError:
    """Return the one-line error of an unreadable file."""
    if isinstance(error, FileNotFoundError):
        return input_error(path, "there is no such file", "check the path")
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return input_error(path, "the compressed file is cut short or damaged", "fetch it again")
    if isinstance(error, UnicodeDecodeError):
        return input_error(path, "the file is not UTF-8 text", "save it in UTF-8")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return input_error(path, f"the file cannot be read: {reason}", "check the path and its permissions")


def _size(path: Path) -> int:
    """Return a file's size in bytes; raises `InputError` for special files, which could block."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if stat.S_ISDIR(found.st_mode):
        raise input_error(path, "is a folder, not a file", "name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise input_error(path, "is neither a file nor a folder", "write what it gives to a file, and name that")
    return found.st_size


def _too_large(path: Path, most: int) -> InputError:
    message = f"holds more than {most >> 20} MiB" + ", decompressed" * (path.suffix == ".gz")
    return input_error(path, message, "is it what you meant? give a part of it")
