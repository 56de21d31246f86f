"""Attacks and their tries, which run in separate processes with time limits."""

import contextlib
import importlib
import multiprocessing
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.abuse.command import TooSlowError


@dataclass(frozen=True)
class Ending:
    """The end of a try: an outcome to count, and what broke, if anything."""

    outcome: str
    broken: str = ""


@dataclass(frozen=True)
class Attack:
    """An attack: its module, what it does, its full number of tries, and when a try counts as hanging.

    The module has `attempt(folder, chance) -> Ending`, and may have `prepare(folder)`, which is called once in each
    process; if it has `NAMES`, each try receives the next one.
    """

    name: str
    about: str
    rounds: int
    limit_s: float = 120

    @property
    def module(self) -> Any:
        """The module of `benchmarks.abuse` with the tries."""
        return importlib.import_module(f"benchmarks.abuse.{self.name}")


@dataclass
class Tally:
    """The outcomes of an attack."""

    attack: Attack
    tries: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    lasted_s: float = 0

    def add(self, number: int, ending: Ending) -> None:
        """Count how a try ended."""
        self.tries += 1
        self.outcomes["broke" if ending.broken else ending.outcome] += 1
        if ending.broken:
            self.broken.append(f"try {number}: {ending.broken}")


def tried(attack: Attack, seed: int, number: int, folder: Path) -> Ending:
    """Run one try, determined by its seed and number."""
    chance = random.Random(f"{seed}/{attack.name}/{number}")
    module = attack.module
    try:
        names = getattr(module, "NAMES", ())
        ending: Ending = module.attempt(folder, chance, *names[number % len(names) :][:1] if names else ())
    except TooSlowError:
        return Ending("", "too slow")
    except Exception:  # noqa: BLE001 - the attack continues, and the error is reported
        return Ending("", f"the attack itself: {traceback.format_exc().strip()}")
    return ending


def make_tries(attack: Attack, rounds: int, seed: int, *, first: int = 0, workers: int = 1) -> Tally:
    """Run `rounds` tries of an attack in separate processes, and return their outcomes.

    A try that exceeds the attack's time limit is killed with all processes that it started; so is one whose process
    ends. Both count as broken.
    """
    tally = Tally(attack)
    numbers = deque(range(first, first + rounds))
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="abuse-", ignore_cleanup_errors=True) as folder:
        hands = [_Hand(attack, seed, Path(folder, f"hand{number}")) for number in range(min(workers, rounds))]
        try:
            while hands:
                wait([hand.connection for hand in hands], timeout=0.5)
                for hand in list(hands):
                    if hand.looked_after(tally, numbers):
                        hands.remove(hand)
        finally:
            for hand in hands:
                hand.end()
    tally.lasted_s = time.monotonic() - begin
    return tally


class _Hand:
    """A process that runs tries one at a time on request."""

    def __init__(self, attack: Attack, seed: int, folder: Path) -> None:
        self._attack, self._seed, self._folder = attack, seed, folder
        self._begin()

    def _begin(self) -> None:
        self._folder.mkdir(exist_ok=True)
        self.connection, theirs = multiprocessing.get_context("spawn").Pipe()
        work = Path(tempfile.mkdtemp(dir=self._folder))
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(self._attack, self._seed, work, theirs)
        )
        self._process.start()
        theirs.close()
        self._current: int | None = None
        self._since = time.monotonic()
        self._ready = False

    def looked_after(self, tally: Tally, numbers: deque[int]) -> bool:
        """Receive the process's report and assign more work; return whether it is done."""
        try:
            while self.connection.poll():
                ending = self.connection.recv()
                if self._current is not None:
                    late = time.monotonic() - self._since > self._attack.limit_s
                    tally.add(self._current, self._late() if late else ending)
                self._current, self._ready = None, True
        except (EOFError, OSError):
            return self._given_up(tally, numbers, Ending("", "the process of the attack ended"))
        if self._current is not None and time.monotonic() - self._since > self._attack.limit_s:
            return self._given_up(tally, numbers, self._late())
        if not self._ready or self._current is not None:
            return False
        if not numbers:
            self.end()
            return True
        self._current, self._since = numbers.popleft(), time.monotonic()
        self.connection.send(self._current)
        return False

    def _late(self) -> Ending:
        return Ending("", f"no end after {self._attack.limit_s:g} s")

    def _given_up(self, tally: Tally, numbers: deque[int], why: Ending) -> bool:
        """Count the current try as broken, and continue in another process; return whether nothing is left to do."""
        if not self._ready:
            raise RuntimeError(f"{self._attack.name}: its preparation fails")
        tally.add(-1 if self._current is None else self._current, why)
        self.end()
        if numbers:
            self._begin()
        return not numbers

    def end(self) -> None:
        """End the process and all that it started."""
        self.connection.close()
        if self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
        self._process.join()


def _serve(attack: Attack, seed: int, folder: Path, connection: Connection) -> None:
    os.setsid()  # all processes that this one starts can be killed with it
    prepare: Callable[[Path], None] | None = getattr(attack.module, "prepare", None)
    if prepare:
        prepare(folder)
    connection.send(None)
    while True:
        try:
            number = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(tried(attack, seed, number, folder))
