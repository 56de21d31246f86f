"""Attack simsched and say what broke.

Usage: python -m benchmarks.abuse [fuzz|kill|flip|all] [--rounds N] [--seed N]

`fuzz` writes random experiments, good and bad ones, and has each validated and, if valid, run: nothing may end but with
exit code 0, 1 or 2 and a message. `kill` kills a sweep at random moments, by SIGKILL, SIGTERM or Ctrl-C once or twice,
finishes it and compares every table with those of an undisturbed run. `flip` flips random bits in files of a run and
counts those that go unnoticed. The exit code is 1 if anything broke.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from benchmarks.abuse import flip, fuzz, kill

ATTACKS = {"fuzz": fuzz.attack, "kill": kill.attack, "flip": flip.attack}


def main() -> int:
    """Run the attacks that were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attack", nargs="?", choices=[*ATTACKS, "all"], default="all")
    parser.add_argument("--rounds", type=int, default=20, help="how often each attack is tried")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    broken = 0
    for name in ATTACKS if given.attack == "all" else [given.attack]:
        with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
            found = ATTACKS[name](Path(folder), given.rounds, random.Random(given.seed))
        for line in found:
            print(f"{name}: BROKEN: {line}")
        broken += len(found)
        print(f"{name}: {given.rounds} rounds, {len(found)} broken", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
