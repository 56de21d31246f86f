"""A cell is reused only if a fresh one would have the same bytes: experiments change in one value."""

import copy
import json
import random
import shutil
from pathlib import Path
from typing import Any

import yaml

from benchmarks.abuse.command import TooSlowError, here, tables
from benchmarks.abuse.drawn import FILES, experiment, value
from benchmarks.abuse.tries import Ending

_DRAWS = 12
_LONGEST_S = 8
_SECTIONS = ("cluster", "engine", "failures", "workload", "policies", "seeds", "tenants", "applications")


def attempt(folder: Path, chance: random.Random) -> Ending:
    """Run an experiment, change it, and compare the second run with one in an empty folder."""
    for name in ("shared", "fresh"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    try:
        first = _ran(folder, chance)
        if first is None:
            return Ending("no valid experiment was drawn")
        told, second = _changed(folder, first, chance)
        fresh = _run(folder, second, "fresh")
        shared = _run(folder, second, "shared")
    except TooSlowError:
        return Ending("took too long to compare")
    if fresh is None or shared is None:
        if (fresh is None) != (shared is None):
            return Ending(
                "", f"{told}: only one of a run with and one without cells to reuse ends well: {json.dumps(first)}"
            )
        return Ending("refused after the change")
    mine, theirs = tables(folder / "fresh/fuzz"), tables(folder / "shared/fuzz")
    wrong = [path for path, content in mine.items() if theirs.get(path) != content]
    if wrong:
        return Ending("", f"{told}: {wrong[0]} is another one where cells are reused: {json.dumps(first)}")
    return Ending("reused, with the same bytes" if shared else "run anew, with the same bytes")


def _ran(folder: Path, chance: random.Random) -> dict[str, Any] | None:
    for _ in range(_DRAWS):
        drawn = experiment(chance, odd=False)
        if _run(folder, drawn, "shared") is not None:
            return drawn
    return None


def _run(folder: Path, content: dict[str, Any], out: str) -> int | None:
    """Run an experiment; return how many cells were reused, None if it was refused or a cell failed."""
    (folder / "fuzz.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    arguments = ("run", "fuzz.yaml", "--out", out, "--in-process", "--json")
    done = here(folder, *arguments, seconds=_LONGEST_S)
    return None if done.returncode else int(json.loads(done.stdout)["cells"]["reused"])


def _changed(folder: Path, first: dict[str, Any], chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Change one value of an experiment or one cell of a file that it reads; return what was changed."""
    second = copy.deepcopy(first)
    way = chance.random()
    if way < 0.2:
        name = chance.choice(("jobs.csv", "tenants.csv", "list.csv", "outages.csv"))
        lines = (folder / name).read_text().splitlines()
        row = chance.randrange(1, len(lines))
        cells = lines[row].split(",")
        at = chance.choice([place for place, cell in enumerate(cells) if cell.isdigit()])
        cells[at] = str(int(cells[at]) + 1)
        lines[row] = ",".join(cells)
        (folder / name).write_text("\n".join(lines) + "\n")
        return f"{name}, line {row + 1}", second
    places = [place for place in _places(second) if place[0] in _SECTIONS]
    where = chance.choice(places)
    held: Any = second
    for key in where[:-1]:
        held = held[key]
    held[where[-1]] = _other(held[where[-1]], chance)
    return f"{'.'.join(map(str, where))} = {held[where[-1]]!r}", second


def _places(content: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    found = [one for key, held in inner for one in _places(held, (*place, key))]
    return found if isinstance(content, dict | list) else [place]


def _other(held: Any, chance: random.Random) -> Any:
    if isinstance(held, bool):
        return not held
    if isinstance(held, int):
        return held + chance.choice((1, 2))
    if isinstance(held, float):
        return held * 0.5
    return value(chance, {"type": "string"}, {}, "gpu_type") if held in ("t4", "v100") else held
