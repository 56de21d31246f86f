"""Lists, fetches and checks the published data that validations need and that do not ship.

    python docs/data.py list [NAME ...]                 # all data, or every file of some with its hash and source
    python docs/data.py get NAME ... [--dir DIR]        # fetch files from their owner into DIR/NAME
    python docs/data.py check [NAME ...] [--dir DIR]    # compare files with their hashes

A file is kept only if its SHA-256 is that of the file that the validation used; one already there with the right hash
is kept. The exit code is 1 if a file that can be fetched is missing or differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from simsched.errors import InputError, input_error
from simsched.experiment.published import PublishedData, PublishedFile, content_hash, find_published, published_data
from simsched.files import written_aside

_LONGEST_WAIT_S = 60
_LARGEST_BYTES = 1 << 28


def fetch(file: PublishedFile, folder: Path) -> None:
    """Fetch a file from its owner into a folder, whole or not at all.

    Raises `OSError` if the network or the owner's server fails, and `InputError` if the content differs.
    """
    assert file.address is not None
    try:
        with urlopen(file.address, timeout=_LONGEST_WAIT_S) as answer:
            content: bytes = answer.read(_LARGEST_BYTES)
    except HTTPException as error:  # interrupted
        raise OSError(str(error)) from error
    if content_hash(content) != file.sha256:
        message = "the owner's file differs from the one that the validation used, and is not kept"
        raise input_error(file.address, message)
    place = folder / file.path
    place.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(place) as aside:
        aside.write_bytes(content)


def get(data: PublishedData, folder: Path) -> bool:
    """Fetch what is missing; return whether all files that can be fetched are there."""
    missing, reason = [], ""
    for file in data.files:
        state = file.state(folder)
        if state not in ("missing", "differs"):
            continue
        missing.append(file)
        if state == "differs":
            _tell(f"{folder / file.path}: exists but differs; remove it to fetch it again")
        elif file.address is not None and not reason:
            try:
                fetch(file, folder)
                missing.pop()
            except InputError as error:
                _tell(str(error))
            except OSError as error:
                message = f"{file.address}: {getattr(error, 'reason', error)}"
                reason = "" if hasattr(error, "code") else message  # the owner's server answers: it may have others
                _tell(message + ("; the other addresses are not tried" if reason else ""))
    sys.stdout.write(f"{folder}: {len(data.files) - len(missing)} of {len(data.files)} files\n")
    if missing:
        _tell("to download by hand:")
        for file in missing:
            _tell(f"  {folder / file.path}" + (f"  from {file.address}" if file.address else ""))
        if data.how and any(file.address is None for file in missing):
            _tell(f"files without an address: {data.how} ({data.owner})")
    return not {*missing} & {*data.wanted}


def check(data: PublishedData, folder: Path, *, whole: bool) -> bool:
    """Print how the files of a folder compare with their hashes; return whether none differs or, if `whole`, lacks."""
    states = {file: file.state(folder) for file in data.files}
    counts = {state: list(states.values()).count(state) for state in dict.fromkeys(states.values())}
    lines = [f"{data.name}: " + ", ".join(f"{count} {state}" for state, count in counts.items())]
    lines += [f"  {state}: {file.path}" for file, state in states.items() if state != "right"]
    sys.stdout.write("\n".join(lines) + "\n")
    lacking = [file for file in data.wanted if states[file] == "missing"] if whole else []
    return not lacking and "differs" not in counts


def details(data: PublishedData) -> str:
    """Return all that is declared of data."""
    facts = {"owner": data.owner, "licence": data.licence, "cite": data.cite, "needed by": ", ".join(data.needed_by)}
    lines = [f"{data.name}: {data.what}", *(f"{key}: {text}" for key, text in facts.items() if text)]
    lines += [
        f"  {file.path}\n    {file.address or 'by hand'}\n    sha256 {file.sha256 or 'not known'}"
        for file in data.files
    ]
    return "\n".join(lines + ([f"by hand: {data.how}"] if data.how else [])) + "\n"


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """List, fetch or check the data that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("list", "get", "check"))
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--dir", dest="folder", type=Path, default=Path("data"), help="folder with one folder per name")
    given = parser.parse_args(arguments)
    try:
        chosen = [find_published(name) for name in dict.fromkeys(given.names)] or list(published_data().values())
        if given.action == "list":
            for data in chosen:
                sys.stdout.write(details(data) if given.names else f"{data.name:14} {data.what}\n")
            return 0
        if given.action == "get":
            if not given.names:
                parser.error("get needs names; `list` tells them")
            fetched = [get(data, given.folder / data.name) for data in chosen]
            return int(False in fetched)
        there = [data for data in chosen if given.names or (given.folder / data.name).is_dir()]
        if not there:
            raise input_error(given.folder, "holds none of the data", "name their folder with --dir")
        whole = bool(given.names)
        right = [check(data, given.folder / data.name, whole=whole) for data in there]
        return int(False in right)
    except InputError as error:
        _tell(f"Error: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
