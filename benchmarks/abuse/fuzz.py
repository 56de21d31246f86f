"""Random experiments over the whole schema: each is valid and runs, or is refused with a message."""

import json
import math
import random
import shutil
import subprocess
from pathlib import Path

import yaml

from benchmarks.abuse.command import TooSlowError, here, run
from benchmarks.abuse.drawn import FILES, experiment
from benchmarks.abuse.tries import Ending

LONGEST_S = 30
#: The message of a run that is given up without progress, such as one whose rounds are shorter than its restarts.
_GIVEN_UP = "so that the run would not end"


def prepare(folder: Path) -> None:
    """Write the files that experiments name."""
    for name, text in FILES.items():
        (folder / name).write_text(text)


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Write, validate and run an experiment."""
    text = yaml.safe_dump(experiment(chance), allow_unicode=True, sort_keys=False)
    (folder / "fuzz.yaml").write_text(text, encoding="utf-8")
    shutil.rmtree(folder / "out", ignore_errors=True)
    try:
        checked = here(folder, "validate", "fuzz.yaml", seconds=LONGEST_S)
    except TooSlowError:
        return Ending("", f"validate is not done after {LONGEST_S} s: {_line(text)}")
    if wrong := fault(checked):
        return Ending("", f"validate: {wrong}: {_line(text)}")
    try:
        done = here(folder, "run", "fuzz.yaml", "--out", "out", "--in-process", "--json", seconds=LONGEST_S)
    except TooSlowError:
        return _limited(folder, text)
    if wrong := fault(done):
        return Ending("", f"run: {wrong}: {_line(text)}")
    if done.returncode == 1 and checked.returncode == 0 and _GIVEN_UP in done.stderr:
        return Ending("valid, and given up as no job progressed")
    if done.returncode != checked.returncode:
        said = done.stderr.strip()[-300:]
        return Ending("", f"validate says {checked.returncode}, run {done.returncode}: {said}: {_line(text)}")
    return Ending("valid and run" if done.returncode == 0 else "refused with a message")


def fault(done: subprocess.CompletedProcess[str]) -> str:
    """Return what is wrong with the end of a command; empty if nothing is."""
    if "Traceback" in done.stderr or "internal error" in done.stderr:
        return done.stderr.strip()[-600:]
    if done.returncode not in (0, 1, 2):
        return f"exit code {done.returncode}"
    if done.returncode and not (done.stderr + done.stdout).strip():
        return "refused without a word"
    if "--json" in done.args and done.stdout and (wrong := unusual(done.stdout)):
        return wrong
    return ""


def unusual(text: str) -> str:
    """Return the part of a text that is not JSON; empty if there is none."""

    def refuse(name: str) -> float:
        raise ValueError(f"{name} is not JSON")

    def finite(number: str) -> float:
        if not math.isfinite(float(number)):
            raise ValueError(f"{number} is not a finite number")
        return float(number)

    try:
        json.loads(text, parse_constant=refuse, parse_float=finite)
    except ValueError as error:
        return str(error)
    return ""


def _limited(folder: Path, text: str) -> Ending:
    """Rerun slow experiments with a time limit for each cell, which must end them."""
    arguments = ("run", "fuzz.yaml", "--out", "limited", "-j", "1", "--timeout-per-cell", "2", "--json")
    try:
        done = run(folder, *arguments, seconds=3 * LONGEST_S)
    except subprocess.TimeoutExpired:
        return Ending("", f"--timeout-per-cell does not end it: {_line(text)}")
    finally:
        shutil.rmtree(folder / "limited", ignore_errors=True)
    wrong = fault(done)
    return Ending("valid, and ended by --timeout-per-cell", f"{wrong}: {_line(text)}" if wrong else "")


def _line(text: str) -> str:
    return json.dumps(yaml.safe_load(text))
