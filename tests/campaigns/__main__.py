"""Play the campaigns and write their table into a page: `python -m tests.campaigns TRIES [--write PAGE]`.

`--only settings` takes the attacks of one module, `-k` those of a name, as all other options of pytest.

Exit code 1 if a try breaks something or none was made.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
HEAD = "| attack | tries | outcomes | broke |\n|---|---:|---|---:|\n"
#: Rows of a page; those of attacks that were not played stay.
ROWS = re.compile(re.escape(HEAD) + r"((?:\|.*\|\n)*)")


def table(report: Path) -> tuple[dict[str, str], int, int]:
    """Return the rows by attack from a report of pytest, the number of tries and of those that broke something."""
    outcomes: dict[str, Counter[str]] = {}
    broke: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        attack = case.attrib["name"].partition("[")[0].removeprefix("test_").replace("_", " ")
        failed = case.find("failure") is not None or case.find("error") is not None
        recorded = [one.attrib["value"] for one in case.iter("property") if one.attrib["name"] == "outcome"]
        outcomes.setdefault(attack, Counter())["broke" if failed else (recorded or ["as it should"])[0]] += 1
        broke[attack] += failed
    rows = {
        attack: f"| {attack} | {found.total():,} | {', '.join(f'{n:,} {what}' for what, n in sorted(found.items()))} "
        f"| {broke[attack]} |"
        for attack, found in outcomes.items()
    }
    return rows, sum(found.total() for found in outcomes.values()), broke.total()


def main() -> int:
    """Play, print the table, and write it into the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("tries", type=int, help="how many tries of each attack")
    parser.add_argument("--write", type=Path, help="a page in which the table stands")
    parser.add_argument("--only", default="", help="the module of the attacks, such as settings")
    given, more = parser.parse_known_args()
    attacks = HERE / f"test_{given.only}.py" if given.only else HERE
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        variables = {"SIMSCHED_TESTS": "whole", "SIMSCHED_TRIES": str(given.tries)}
        options = ["-q", "-o", "junit_family=xunit1", f"--junitxml={report}", *more]
        command = [sys.executable, "-m", "pytest", *options, str(attacks)]
        subprocess.run(command, env={**os.environ, **variables}, check=False)
        rows, tried, broke = table(report)
    sys.stdout.write("\n".join([*rows.values(), f"{tried:,} tries, {broke} of them broke something\n"]))
    if given.write:
        text = given.write.read_text(encoding="utf-8")
        if not (stands := ROWS.search(text)):
            parser.error(f"{given.write}: no table with the head of this campaign")
        all_rows = {row.split("|")[1].strip(): row for row in stands[1].splitlines()} | rows
        whole = HEAD + "".join(f"{row}\n" for _, row in sorted(all_rows.items()))
        given.write.write_text(text.replace(stands[0], whole), encoding="utf-8")
    return int(bool(broke) or not tried)


if __name__ == "__main__":
    sys.exit(main())
