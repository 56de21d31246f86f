"""Tells whether the table in the README is what its main command prints.

    python docs/readme_table.py RUN OUTPUT

RUN is the folder of the run, OUTPUT what the command printed. Rows have to be equal in every digit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from simsched.results import read_run

README = Path(__file__).resolve().parent.parent / "README.md"
_DIFFERENT = 1


def rows(text: str, labels: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the cells of the lines of a table that begin with one of the labels, up to the differences."""
    found = []
    for line in _until_differences(text):
        words = line.split()
        if words and words[0] in labels:
            found.append(tuple(words))
    return found


def _until_differences(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("Difference from"):
            return
        yield line


def printed_in(readme: str) -> str:
    """Return the block of the README that follows its first look; raises `ValueError` where there is none."""
    _, heading, rest = readme.partition("## A first look")
    if not heading:
        message = "README.md has no section '## A first look'"
        raise ValueError(message)
    return rest.split("```")[1]


def differences(readme: str, output: str, labels: tuple[str, ...]) -> list[str]:
    """Return what differs between the README and what was printed of some policies."""
    shown, made = rows(printed_in(readme), labels), rows(output, labels)
    found = [
        f"README: {' '.join(one)}\n   run: {' '.join(other)}"
        for one, other in zip(shown, made, strict=False)
        if one != other
    ]
    if len(shown) != len(made):
        found.append(f"README has {len(shown)} rows of {', '.join(labels)}, the run other ones")
    return found


def main() -> int:
    """Read the command line, compare, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    labels = tuple(dict.fromkeys(cell.policy for cell in read_run(given.run).cells))
    texts = (README.read_text(encoding="utf-8"), given.output.read_text(encoding="utf-8"))
    if not rows(printed_in(texts[0]), labels):
        sys.stderr.write("README.md: its table has no row of a policy of this run\n")
        return _DIFFERENT
    wrong = differences(*texts, labels)
    for line in wrong:
        sys.stderr.write(f"the README is stale:\n{line}\n")
    sys.stdout.write(f"README.md: rows of {', '.join(labels)} are {'stale' if wrong else 'as the run has them'}\n")
    return _DIFFERENT if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
