"""Attack simsched and report what broke.

Usage: python -m benchmarks.abuse [--only NAME ...] [--rounds N] [--first N] [--seed N] [--workers N] [--results DIR]
       [--page FILE]

Without options all attacks run with their full numbers of tries, on two processes. The seed and its number determine a
try: `--only fuzz --seed 1 --first 37 --rounds 1` repeats try 37. The exit code is 1 if anything broke.

With `--results` the outcome of each attack is stored in a folder, so that attacks can run one at a time, or in parts
with `--first` and `--rounds`; the table then covers the whole folder. With `--rounds 0` nothing is tried.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.abuse.tries import Attack, Tally, make_tries

ATTACKS = (
    Attack("fuzz", "experiments drawn from the whole schema are validated and, where valid, run", 2000, 240),
    Attack("mutants", "a trace of every format is changed in bytes, cells, encoding, size, nesting, kind", 4000),
    Attack("doctor", "a folder of results is doctored and read by every command", 500, 600),
    Attack("kill", "a sweep is killed at a random moment and finished", 100, 600),
    Attack("hostile", "a policy that means badly runs between two good cells", 104, 300),
    Attack("reuse", "an experiment is changed in one value, cells that are reused compared with fresh ones", 150, 300),
    Attack("unsaid", "what a trace says is used, or the user is told", 200),
    Attack("calls", "`sim.simulate` is called with odd jobs, clusters and settings", 400),
    Attack("names", "odd labels, job ids and tenants reach tables, figures, reports and the terminal", 60, 300),
    Attack("strangers", "files of others, links and locked folders lie where results are removed", 100, 300),
    Attack(
        "disks", "the disk is full after a random number of bytes, while cells, figures or reports are written", 60, 300
    ),
    Attack("flip", "one bit of a stored result is flipped", 1000),
)
_MARKS = ("<!-- made by python -m benchmarks.abuse -->", "<!-- end of what it made -->")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested attacks."""
    given = _parser().parse_args(arguments)
    tallies = []
    for attack in ATTACKS if given.rounds != 0 else ():
        if given.only and attack.name not in given.only:
            continue
        rounds = given.rounds or attack.rounds
        tally = make_tries(attack, rounds, given.seed, first=given.first, workers=given.workers)
        if given.results:
            given.results.mkdir(parents=True, exist_ok=True)
            write(given.results / f"{attack.name}-{given.seed}-{given.first}.json", tally)
        for line in tally.broken:
            print(f"{attack.name}: BROKEN: {line}")
        print(f"{attack.name}: {tally.tries} tries, {_counted(tally)} ({tally.lasted_s:.0f} s)", flush=True)
        tallies.append(tally)
    if given.results:
        tallies = read(given.results)
    print(f"\n{table(tallies)}")
    if given.page:
        fill(given.page, tallies)
    return 1 if any(tally.broken for tally in tallies) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [attack.name for attack in ATTACKS]
    parser.add_argument("--only", action="append", choices=names, help="make this attack only; repeatable")
    parser.add_argument("--rounds", type=int, help="tries of each attack instead of the full number")
    parser.add_argument("--first", type=int, default=0, help="number of the first try")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="processes that make tries")
    parser.add_argument("--results", type=Path, help="keep what came of the attacks in this folder, and tell all of it")
    parser.add_argument("--page", type=Path, help="fill the table of this page")
    return parser


def table(tallies: Sequence[Tally]) -> str:
    """Return the table of tries and outcomes in Markdown; it marks attacks with fewer than the full number."""
    rows = []
    for tally in tallies:
        attack = tally.attack
        tries = f"{tally.tries:,}" if tally.tries >= attack.rounds else f"{tally.tries:,} of {attack.rounds:,}"
        rows.append(f"| `{attack.name}` | {attack.about} | {tries} | {_counted(tally)} | {len(tally.broken)} |")
    head = ["| attack | what is done | tries | outcomes | broke |", "|---|---|---:|---|---:|"]
    return "\n".join([*head, *rows])


def write(path: Path, tally: Tally) -> None:
    """Store a tally."""
    path.write_text(json.dumps({"tries": tally.tries, "outcomes": tally.outcomes, "broken": tally.broken}))


def read(folder: Path) -> list[Tally]:
    """Read the stored tally of each attack, summed over its parts."""
    tallies = []
    for attack in ATTACKS:
        tally = Tally(attack)
        for path in sorted(folder.glob(f"{attack.name}-*.json")):
            part = json.loads(path.read_text())
            tally.tries += part["tries"]
            tally.outcomes.update(part["outcomes"])
            tally.broken += part["broken"]
        tallies += [tally] if tally.tries else []
    return tallies


def _counted(tally: Tally) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(tally.outcomes.items()))


def fill(page: Path, tallies: Sequence[Tally]) -> None:
    """Replace the content between the marks of a page by the table."""
    text = page.read_text(encoding="utf-8")
    before, after = text.index(_MARKS[0]) + len(_MARKS[0]), text.index(_MARKS[1])
    page.write_text(f"{text[:before]}\n{table(tallies)}\n{text[after:]}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
