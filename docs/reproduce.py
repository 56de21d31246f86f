"""Builds the pages with published figures from scratch: runs their commands in order and fills their tables.

    python docs/reproduce.py RESULTS                          # everything; finished cells are not run again
    python docs/reproduce.py RESULTS --list                   # what would run, and which data are missing
    python docs/reproduce.py RESULTS --only RUN --check       # some runs; check the tables against them

A page names its runs in the marks of its tables, and the commands that produce them in the block after
`<!-- simsched: commands -->`. Environment variables name data that is not part of simsched, as in
`$GAVEL/simulation_throughputs.json`; commands with unset variables are skipped, and their tables stay unchanged.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from docs.filled_page import main as verdicts, pages_in, runs_on
from simsched.documents import yaml_lines
from simsched.errors import InputError, input_error
from simsched.experiment import find_experiment

ROOT = Path(__file__).resolve().parent.parent

_BLOCK = re.compile(r"<!-- simsched: commands -->\n+((?: {4}\S.*\n| {6,}\S.*\n)+)")
_VARIABLE = re.compile(r"\$([A-Z_]+)")
#: The command of this environment, whatever the shell would find.
_COMMAND = [sys.executable, "-c", "from simsched.cli.entry import main; main()"]


@dataclass(frozen=True)
class Step:
    """A command of a page, and the run that it produces (empty: it prepares later commands)."""

    page: Path
    words: tuple[str, ...]
    run: str

    @property
    def unset(self) -> tuple[str, ...]:
        """Required environment variables that are not set."""
        names = dict.fromkeys(name for word in self.words for name in _VARIABLE.findall(word))
        return tuple(name for name in names if not os.environ.get(name))

    def command(self, results: Path) -> list[str]:
        """Return the command line to run."""
        words = [_VARIABLE.sub(lambda found: os.environ[found[1]], word) for word in self.words]
        return [*_COMMAND, *words, *(["--out", str(results), "--no-plots"] if self.run else [])]


def steps_of(page: Path) -> list[Step]:
    """Return the commands of a page; raise `InputError` if a run has no command, or a command no table."""
    lines = [line for block in _BLOCK.findall(page.read_text(encoding="utf-8")) for line in _lines(block)]
    steps = [Step(page, tuple(shlex.split(line)[1:]), _run_of(line)) for line in lines]
    shown, made = set(runs_on(page)), [step.run for step in steps if step.run]
    for run in sorted(shown.symmetric_difference(made)):
        message = f"shows '{run}', which no command makes" if run in shown else f"makes '{run}', which no table shows"
        raise input_error(page, message, "write the command into the block after '<!-- simsched: commands -->'")
    return steps


def _lines(block: str) -> Iterator[str]:
    """Yield the commands of a block, with continued lines joined."""
    for line in re.sub(r"\\\n\s*", "", block).splitlines():
        if line.strip().startswith("simsched "):
            yield line.partition("  # ")[0].strip()


def _run_of(line: str) -> str:
    words = shlex.split(line)
    if words[1] != "run":
        return ""
    if "--name" in words:
        return words[words.index("--name") + 1]
    return str(yaml_lines.load(find_experiment(words[2])).data["name"])


def _chosen(pages: Sequence[Path], only: Sequence[str]) -> list[Step]:
    steps = [step for page in pages for step in steps_of(page)]
    unknown = sorted(set(only) - {step.run for step in steps})
    if unknown:
        raise input_error("--only", f"no page shows '{unknown[0]}'", "see --list")
    return [step for step in steps if not only or step.run in only]


def reproduce(pages: Sequence[Path], results: Path, only: Sequence[str], *, check: bool) -> int:
    """Run the commands of pages, then fill or check their tables; return 1 if anything failed or differs."""
    failed = False
    for step in _chosen(pages, only):
        _say(f"+ simsched {shlex.join(step.words)}")
        if step.unset:
            _say(f"  left out: set {', '.join(step.unset)} to where these data are")
        elif subprocess.run(step.command(results), stdout=subprocess.DEVNULL, check=False).returncode:
            failed = True
    named = [word for page in pages for word in ("--page", str(page))]
    return int(verdicts([str(results), *named, *(["--check"] if check else [])]) != 0 or failed)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of all runs")
    parser.add_argument("--page", type=Path, action="append", help="only this page")
    parser.add_argument("--only", action="append", default=[], metavar="RUN", help="only this run")
    parser.add_argument("--check", action="store_true", help="only check the pages against the results")
    parser.add_argument("--list", action="store_true", help="only list what would run")
    given = parser.parse_args()
    try:
        pages = given.page or pages_in(ROOT / "docs")
        if given.list:
            for step in _chosen(pages, given.only):
                needs = f"  # needs {', '.join(step.unset)}" if step.unset else ""
                _say(f"{step.run or '-'}: simsched {shlex.join(step.words)}{needs}")
            return 0
        return reproduce(pages, given.results, given.only, check=given.check)
    except InputError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
