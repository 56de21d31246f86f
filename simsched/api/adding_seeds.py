"""Runs an experiment with `seeds: auto`: adds seeds until its comparisons are decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simsched.experiment import Grid
from simsched.experiment.running import RunResult
from simsched.results import RUN_FILE, read_run
from simsched.results.compare import SeedDecision, decide, kept, looks, undecided
from simsched.words import counted


@dataclass(frozen=True)
class AddedSeeds:
    """The result of adding seeds: the decisions after `seeds` of at most `most`, with the planned looks."""

    seeds: int
    looks: Sequence[int]
    decisions: Sequence[SeedDecision]

    def lines(self) -> list[str]:
        """Describe the decisions, one line per comparison."""
        planned, of = ", ".join(map(str, self.looks)), len(self.decisions)
        said = [
            f"Seeds were added until decided: {self.seeds} of at most {self.looks[-1]} (looks at {planned}; "
            f"confidence of each interval 1 - 0.05 / ({of} x {len(self.looks)}), so that all hold at once)."
        ]
        for one in self.decisions:
            found = one.ratio
            if found is None or found.low is None or found.high is None:
                said.append(f"{one.row} / {one.reference}: no ratio, {one.verdict}")
            else:
                shown = f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"
                said.append(f"{one.row} / {one.reference}: {shown}, {one.verdict}")
        return said


def run_to_decision(
    grid: Grid,
    run: Callable[[Grid], RunResult],
    remade: Callable[[Sequence[int], str], Grid],
    say: Callable[[str], None],
) -> tuple[Grid, RunResult, AddedSeeds | None]:
    """Run a grid, and with `seeds: auto` more seeds of it, until all comparisons are decided or the budget is spent.

    `remade` creates the grid with other seeds, into the folder of the given name. A failed cell ends the procedure. The
    decisions are None if the experiment lists its seeds.
    """
    rule = grid.experiment.spec.sequential
    result = run(grid)
    if rule is None or not rule.added:
        return grid, result, None
    planned, decisions = looks(rule.most_seeds), list[SeedDecision]()
    for count in planned:
        if count != len(grid.experiment.spec.seeds):
            grid = remade(range(1, count + 1), grid.folder_name)
            result = run(grid)
        if result.failures or not (result.folder / RUN_FILE).is_file():
            return grid, result, None
        decisions = kept(decisions, decide(read_run(result.folder), rule.metric, planned, rule.margin))
        left = undecided(decisions)
        decided = len(decisions) - len(left)
        say(f"{counted(count, 'seed')}: {decided} of {counted(len(decisions), 'comparison')} decided")
        if not left:
            break
    return grid, result, AddedSeeds(count, planned, decisions)
