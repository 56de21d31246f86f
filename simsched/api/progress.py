"""Progress of a run on stderr: bars on a terminal or in a notebook, a line per finished cell elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simsched.outlets import one_line, plain_stream
from simsched.words import counted

if TYPE_CHECKING:
    from simsched.experiment import GridCell
    from simsched.experiment.running import Listener

_REDRAW_S = 0.1
_CHECKING_S = 2.0


@contextmanager
def progress_listener() -> Iterator[Listener]:
    """Yield a listener that shows a run on stderr during the block."""
    if not sys.stderr.isatty() and not _in_notebook():
        yield LineListener()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn()
    console = Console() if _in_notebook() else Console(file=plain_stream(sys.stderr))
    with Progress(*columns, TextColumn("{task.fields[said]}"), console=console, transient=True) as bars:
        yield BarListener(bars)


def grid_progress() -> Callable[[int, int], None]:
    """Return a reporter that prints on stderr, every few seconds, how many cells have been read and checked."""
    said = time.monotonic()

    def tell(made: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _CHECKING_S:
            said = time.monotonic()
            _say(f"checking: {made} of {total} cells")

    return tell


def _in_notebook() -> bool:
    """Return whether this runs in a notebook, which can also draw bars."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return running is not None and hasattr(running, "kernel")


def _say(line: str) -> None:
    sys.stderr.write(f"{one_line(line)}\n")
    sys.stderr.flush()


class _Counting:
    """Counts the cells of a run and estimates when the last one ends."""

    def __init__(self) -> None:
        self._cells = self._done = self._reused = 0
        self._since = 0.0

    def _begin(self, cells: int, reused: int) -> None:
        self._cells, self._done, self._reused, self._since = cells, reused, reused, time.monotonic()

    def _left(self, parts: float = 0.0) -> str:
        """Say how long the rest takes, if it goes on as so far; `parts` of cells are done beside the whole ones."""
        made, left = self._done - self._reused + parts, self._cells - self._done - parts
        if made <= 0 or self._done >= self._cells:
            return ""
        seconds = (time.monotonic() - self._since) * left / made
        return f"about {_clock(seconds)} left"

    def damaged(self, cell: GridCell, fault: str) -> None:
        """Print the cell and its fault."""
        _say(f"simsched: {cell.name}: {fault}; the cell is run again")


def _clock(seconds: float) -> str:
    """Return a duration in its two largest units, as in `4 min 10 s`."""
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class LineListener(_Counting):
    """Writes a line for each finished cell."""

    def began(self, cells: int, reused: int) -> None:
        """Print the number of cells."""
        self._begin(cells, reused)
        again = f", {reused} of them reused" if reused else ""
        _say(f"{counted(cells, 'cell')}{again}")

    def workers(self, number: int) -> None:
        """Print their number."""
        _say(counted(number, "worker"))

    def advanced(self, running: Sequence[tuple[GridCell, int, int]]) -> None:
        """Stay quiet between cells."""

    def finished(self, cell: GridCell, wall_s: float) -> None:
        """Print the cell, its cost, and how long the rest takes."""
        self._done += 1
        left = self._left()
        _say(f"[{self._done}/{self._cells}] {cell.name} ({wall_s:.1f} s)" + f", {left}" * bool(left))

    def failed(self, cell: GridCell, message: str) -> None:
        """Print the failed cell; the reason follows at the end."""
        self._done += 1
        _say(f"[{self._done}/{self._cells}] {cell.name} FAILED")


class BarListener(_Counting):
    """Draws a bar for all cells, with the time left, and one for each running cell, with simulated time and jobs."""

    def __init__(self, bars: Any) -> None:
        """Draw on `bars`, a `rich.progress.Progress`."""
        super().__init__()
        self._bars = bars
        self._all = bars.add_task("cells", total=None, said="")
        self._running: dict[str, Any] = {}
        self._drawn = 0.0

    def began(self, cells: int, reused: int) -> None:
        """Set the length of the bar."""
        self._begin(cells, reused)
        self._bars.update(self._all, total=cells, completed=reused)

    def workers(self, number: int) -> None:
        """Show their number."""
        self._bars.update(self._all, said=f"{number} workers")

    def advanced(self, running: Sequence[tuple[GridCell, int, int]]) -> None:
        """Move the bars of running cells."""
        now = time.monotonic()
        if now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        for cell, now_s, jobs in running:
            key = cell.task.key
            if key not in self._running:
                self._running[key] = self._bars.add_task(one_line(cell.name), total=len(cell.task.jobs), said="jobs")
            self._bars.update(self._running[key], completed=jobs, said=f"jobs, t = {now_s / 3600:.1f} h")
        parts = sum(jobs / max(len(cell.task.jobs), 1) for cell, _, jobs in running)
        self._bars.update(self._all, said=self._left(parts))

    def finished(self, cell: GridCell, wall_s: float) -> None:
        """Remove the cell's bar."""
        self._done += 1
        self._bars.update(self._all, advance=1, said=self._left())
        bar = self._running.pop(cell.task.key, None)
        if bar is not None:
            self._bars.remove_task(bar)

    def failed(self, cell: GridCell, message: str) -> None:
        """Remove the cell's bar."""
        self.finished(cell, 0.0)
