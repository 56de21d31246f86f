"""Published data that validations need but that do not ship: contents, owners, and how to get and verify them.

`published.yaml` declares them; the script `docs/data.py`, its page and the messages of tests use it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from simsched.documents import yaml_lines
from simsched.errors import input_error, nearest
from simsched.paths import data_folder

State = Literal["right", "missing", "differs", "not known"]


@dataclass(frozen=True)
class PublishedFile:
    """A file by its path in the folder of its data; `sha256` and `address` are None if not known."""

    path: str
    sha256: str | None
    address: str | None

    def state(self, folder: Path) -> State:
        """Compare a copy in a folder with the hash."""
        place = folder / self.path
        if not place.is_file():
            return "missing"
        if self.sha256 is None:
            return "not known"
        return "right" if content_hash(place.read_bytes()) == self.sha256 else "differs"


@dataclass(frozen=True)
class PublishedData:
    """What one owner published; `how` describes how to get the files without an address."""

    name: str
    what: str
    owner: str
    licence: str
    cite: str
    how: str
    needed_by: tuple[str, ...]
    files: tuple[PublishedFile, ...]

    @property
    def by_hand(self) -> tuple[PublishedFile, ...]:
        """List the files that cannot be fetched."""
        return tuple(file for file in self.files if file.address is None)

    @property
    def wanted(self) -> tuple[PublishedFile, ...]:
        """List the files that can be fetched, or all if none can."""
        return tuple(file for file in self.files if file.address) or self.files

    def remedy(self) -> str:
        """Return one line on how to get the data."""
        owner = self.owner.split(" ")[0]
        return f"{owner} publishes it: in a checkout `python docs/data.py get {self.name}` fetches it, or tells how"


def content_hash(content: bytes) -> str:
    """Return the SHA-256 of a file with Unix line ends and without a byte order mark."""
    return hashlib.sha256(content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")).hexdigest()


@cache
def published_data() -> Mapping[str, PublishedData]:
    """Return all declared data by name."""
    declared = yaml_lines.load(Path(__file__).with_suffix(".yaml")).data
    return {name: _data(name, dict(said)) for name, said in declared.items()}


def find_published(name: str) -> PublishedData:
    """Return data by name; raises `InputError` for an unknown name."""
    known = published_data()
    if name not in known:
        raise input_error("NAME", f"no data are called '{name}'", nearest(name, known))
    return known[name]


def remedy_for(path: Path) -> str:
    """Return how to get a missing file or folder that a shipped experiment names; "" for any other."""
    if not path.is_relative_to(data_folder("experiments")):
        return ""
    for data in published_data().values():
        if any(path.name in Path(file.path).parts for file in data.files):
            return data.remedy()
    return ""


def _data(name: str, said: dict[str, object]) -> PublishedData:
    base, given, by_hand, needed_by = (said.pop(key, None) for key in ("base", "files", "by_hand", "needed_by"))
    assert isinstance(given, dict | None)
    assert isinstance(by_hand, dict | None)
    assert isinstance(needed_by, list | None)
    files = [_file(path, one, str(base)) for path, one in (given or {}).items()]
    files += [PublishedFile(path, sha256, None) for path, sha256 in (by_hand or {}).items()]
    texts = {key: str(said.pop(key, "")) for key in ("what", "owner", "licence", "cite", "how")}
    assert not said, f"unknown keys of {name}: {sorted(said)}"
    return PublishedData(name, needed_by=tuple(needed_by or ()), files=tuple(files), **texts)


def _file(path: str, said: str | dict[str, str], base: str) -> PublishedFile:
    one = {"sha256": said} if isinstance(said, str) else said
    return PublishedFile(path, one["sha256"], f"{base}/{quote(one.get('at', path))}")
