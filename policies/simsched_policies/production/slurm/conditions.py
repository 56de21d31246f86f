"""What constrains the start of a job besides room and limits: dependencies, places in its array, licences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from simsched.model import JobRequest


class Conditions:
    """Dependencies between jobs, running tasks of each array, and licences in use."""

    def __init__(self, licences: Mapping[str, int]) -> None:
        """Start with nothing running; unnamed licences are not counted."""
        self._left = Counter(licences)
        self._counted = frozenset(licences)
        self._tasks: Counter[tuple[str, str]] = Counter()
        self._missing: dict[str, set[str]] = {}
        self._followers: dict[str, list[str]] = {}
        #: The jobs that have an array or licences to wait for.
        self._bound: dict[str, JobRequest] = {}

    @property
    def any(self) -> bool:
        """Return whether any job has such constraints."""
        return bool(self._bound)

    @property
    def binds(self) -> bool:
        """Return whether the end of a job may matter here."""
        return bool(self._bound or self._followers)

    def note(self, request: JobRequest) -> None:
        """Add the constraints of a waiting job."""
        if request.terms is not None and (request.terms.group_limit or request.terms.licences):
            self._bound[request.id] = request

    def must_wait(self, request: JobRequest, active: Collection[str]) -> bool:
        """Return whether a new job waits for others to end, and record it."""
        first = {one for one in request.terms.after if one in active} if request.terms is not None else set()
        if first:
            self._missing[request.id] = first
            for one in first:
                self._followers.setdefault(one, []).append(request.id)
        return bool(first)

    def ended(self, job_id: str) -> list[str]:
        """Return the jobs whose last dependency this end resolves."""
        found = []
        self._bound.pop(job_id, None)
        for one in self._followers.pop(job_id, ()):
            self._missing[one].discard(job_id)
            if not self._missing[one]:
                del self._missing[one]
                found.append(one)
        return found

    def allows(self, job_id: str) -> bool:
        """Return whether a waiting job may start."""
        request = self._bound.get(job_id)
        return request is None or self.allow(request)

    def allow(self, request: JobRequest) -> bool:
        """Return whether a job may start: its array has a place, and its licences are free."""
        terms = request.terms
        if terms is None:
            return True
        full = 0 < terms.group_limit <= self._tasks[request.user, request.group]
        return not full and all(self._left[name] >= count for name, count in terms.licences if name in self._counted)

    def count(self, request: JobRequest, sign: int) -> None:
        """Add a starting job, or remove one with a `sign` of -1."""
        terms = request.terms
        if terms is not None:
            self._tasks[request.user, request.group] += sign
            for name, count in terms.licences:
                self._left[name] -= sign * count
