"""Recordings that policies play back, and checks that they match the jobs at hand.

A recording is a JSON file with one long list; errors name an entry by number and line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from simsched.agent import Agent
from simsched.errors import InputError, input_error
from simsched.model import ApplicationFacts, Cluster, JobRequest, Node
from simsched.policy import Decision, JobView, Triggers, View
from simsched.policy.signals import NEXT_ARRIVAL
from simsched.reading import parse_json, read_text

_DECODER = json.JSONDecoder()


class Recording:
    """The list `key` of the JSON object in a file, plain or .gz."""

    def __init__(self, path: Path, key: str) -> None:
        """Read the file; raises `InputError` if it cannot be read, is truncated, or has no such list."""
        self.path = path
        self._key = key
        remedy = f"name a JSON file with the list '{key}', plain or .gz"
        self._text = read_text(path)
        held = parse_json(self._text, path, remedy)
        entries = held.get(key) if isinstance(held, dict) else None
        if not isinstance(entries, list) or not entries:
            raise input_error(path, f"the recording has no list '{key}', or an empty one", remedy, line=1)
        self.entries: list[Any] = entries

    def problem(self, number: int, message: str, remedy: str) -> InputError:
        """Return an error about an entry, counted from 0, at its first line; one past the end has the last line."""
        return input_error(self.path, f"{self._key}[{number}] {message}", remedy, line=self._line(number))

    def _line(self, number: int) -> int:
        text, at = self._text, self._text.index("{") + 1
        while True:
            key, at = _DECODER.raw_decode(text, _skip(text, at))
            at = _skip(text, at)
            if key == self._key:
                at += 1
                break
            _, at = _DECODER.raw_decode(text, at)
        for _ in range(min(number, len(self.entries) - 1)):
            _, at = _DECODER.raw_decode(text, _skip(text, at))
        return text.count("\n", 0, _skip(text, at)) + 1


def _skip(text: str, at: int) -> int:
    """Skip blanks and separators between two values."""
    while text[at] in " \t\r\n,:":
        at += 1
    return at


class Books(Protocol):
    """A policy whose own books alone determine when jobs end."""

    @property
    def triggers(self) -> Triggers:
        """Return when the policy decides; `play` only reads whether it also decides while no job is active."""

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Open an account for a submitted job."""

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Decide, and record the decision in the books."""

    def due(self) -> tuple[float, Sequence[str]]:
        """Return the second of the next event other than an arrival, and the ids of the jobs that end by then."""


@dataclass
class _Moment:
    """The part of a view that the books read."""

    now_s: float
    next_arrival_s: float
    arrived: Sequence[JobView]
    finished: Sequence[str]
    jobs: Mapping[str, JobView]
    nodes: Sequence[Node]
    up: Sequence[bool]

    def __getitem__(self, signal: object) -> Callable[[], float]:
        assert signal is NEXT_ARRIVAL
        return lambda: self.next_arrival_s


def play(books: Books, jobs: Sequence[JobView], cluster: Cluster) -> None:
    """Run the books, without an engine, over every arrival and event until all jobs, sorted by submission, have ended.

    It finds a recording that does not fit before anything runs.
    """
    rng, active, now_s, came = np.random.default_rng(0), dict[str, JobView](), 0.0, 0
    finished: Sequence[str] = ()
    while came < len(jobs) or active:
        # As in the engine, the end of the last job shows at the next arrival, unless quiet times count.
        due_s, ending = (math.inf, finished) if finished else books.due()
        now_s = max(now_s, min(_submitted_s(jobs, came), due_s))
        if now_s == math.inf:
            return  # nothing will happen; the run reports it
        if due_s <= now_s:
            finished = ending
            for job_id in finished:
                del active[job_id]
        arrived: list[JobView] = []
        while _submitted_s(jobs, came) <= now_s:
            arrived.append(jobs[came])
            books.agent(jobs[came].request, jobs[came].facts)
            active[jobs[came].id] = jobs[came]
            came += 1
        if active or (books.triggers.quiet and came < len(jobs)):
            up = (True,) * len(cluster.nodes)
            moment = _Moment(now_s, _submitted_s(jobs, came), arrived, finished, active, cluster.nodes, up)
            books.decide(cast("View", moment), rng)
            finished = ()


def _submitted_s(jobs: Sequence[JobView], number: int) -> float:
    return jobs[number].request.submit_time_s if number < len(jobs) else math.inf
