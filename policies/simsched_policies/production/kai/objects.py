"""KAI's own objects as `kubectl get queues.scheduling.run.ai,podgroups.scheduling.run.ai -A -o json` writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from simsched.errors import input_error, nearest
from simsched.reading import read_json
from simsched_policies.production.kai.model import (
    DEFAULT_QUEUE_PRIORITY,
    PRIORITIES,
    RESOURCES,
    UNLIMITED,
    Queue,
    Quota,
    preemptible_by_priority,
)

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


@dataclass(frozen=True)
class Group:
    """What a PodGroup says of a job: its queue, minimum (None: all pods), priority, and whether it is preemptible."""

    queue: str = ""
    min_member: int | None = None
    priority: float = PRIORITIES["train"]
    preemptible: bool = True


@dataclass(frozen=True)
class Declared:
    """Queues by name, and PodGroups by name, which is that of their job."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)

    def is_leaf(self, name: str) -> bool:
        """Return whether a queue is there and takes jobs."""
        return name in self.queues and all(queue.parent != name for queue in self.queues.values())


def read_declared(path: Path) -> Declared:
    """Read the objects of a file; raises `InputError` for what is wrong, and for a field or kind that has no word."""
    content = read_json(path)
    items = content.get("items", [content]) if isinstance(content, Mapping) else content
    if not isinstance(items, list):
        raise input_error(path, "holds no list of objects", "write it with kubectl get ... -o json")
    queues: dict[str, Queue] = {}
    groups: dict[str, Group] = {}
    for item in items:
        spec = _Spec(path, item)
        if spec.kind == "Queue":
            queues[spec.name] = _queue(spec, float(len(queues)))
        elif spec.kind == "PodGroup":
            groups[spec.name] = _group(spec)
        else:
            spec.fail("kind", f"is '{spec.kind}', and only Queue and PodGroup are read", "take the object out")
        spec.end()
    for name in queues:
        seen, above = {name}, queues[name].parent
        while above is not None:
            if above not in queues or above in seen:
                message = f"its parent '{above}' is {'above itself' if above in seen else 'not in the file'}"
                raise input_error(f"{path}: Queue {name}, spec.parentQueue", message, nearest(above, queues))
            seen.add(above)
            above = queues[above].parent
    return Declared(queues, groups)


class _Spec:
    """The fields of an object's specification, each of which has to be asked for."""

    def __init__(self, path: Path, item: Any, data: Any = None, at: str = "spec") -> None:
        item = item if isinstance(item, Mapping) else {}
        self._path, self._item, self._at = path, item, at
        self.kind = str(item.get("kind", ""))
        self.name = str((item.get("metadata") or {}).get("name", ""))
        inside = item.get("spec") if data is None else data
        self._left: dict[str, Any] = dict(inside) if isinstance(inside, Mapping) else {}
        if not self.name:
            self.fail("metadata.name", "is missing", "write objects as kubectl get ... -o json does")

    def fail(self, key: str, message: str, remedy: str) -> NoReturn:
        raise input_error(f"{self._path}: {self.kind or 'object'} {self.name}, {key}", message, remedy)

    def text(self, key: str) -> str:
        value = self._left.pop(key, None) or ""
        if not isinstance(value, str):
            self.fail(f"{self._at}.{key}", f"must be text, not {value!r:.40}", "put it in quotes")
        return value

    def number(self, key: str, default: float, least: float) -> float:
        value = self._left.pop(key, None)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
            self.fail(f"{self._at}.{key}", f"must be a number of at least {least:g}, not {value!r:.40}", "")
        return float(value)

    def part(self, key: str) -> _Spec:
        return _Spec(self._path, self._item, self._left.pop(key, None) or {}, f"{self._at}.{key}")

    def duration_s(self, key: str) -> float | None:
        said = self.text(key)
        parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", said)
        if "".join(number + unit for number, unit in parts) != said:
            self.fail(f"{self._at}.{key}", f"must be a duration, not '{said}'", "write it as in 1h30m or 45s")
        return sum(float(number) * _SECONDS[unit] for number, unit in parts) if said else None

    def end(self) -> None:
        if self._left:
            remedy = "take it out, if the run may do without it"
            self.fail(f"{self._at}.{min(self._left)}", "is not modelled", remedy)


def _queue(spec: _Spec, created_s: float) -> Queue:
    spec.text("displayName")
    resources = spec.part("resources")
    quotas = []
    for resource in RESOURCES:
        part = resources.part(resource)
        quotas.append(Quota(*(part.number(key, 0.0, least) for key, least in _QUOTA.items())))
        part.end()
    resources.end()
    cpu, memory, gpu = quotas
    return Queue(
        spec.name,
        spec.text("parentQueue") or None,
        (cpu, memory, gpu),
        int(spec.number("priority", DEFAULT_QUEUE_PRIORITY, -(2.0**31))),
        created_s,
        spec.duration_s("preemptMinRuntime"),
        spec.duration_s("reclaimMinRuntime"),
    )


#: The keys of a resource in the order of `Quota`, with the least that each may be.
_QUOTA = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 0.0}


def _group(spec: _Spec) -> Group:
    queue, name = spec.text("queue"), spec.text("priorityClassName") or "train"
    if name not in PRIORITIES:
        spec.fail("spec.priorityClassName", f"is '{name}', which KAI does not ship", nearest(name, PRIORITIES))
    said, least = spec.text("preemptibility"), int(spec.number("minMember", 0, 0))
    if said not in ("", "preemptible", "non-preemptible"):
        spec.fail("spec.preemptibility", f"is '{said}'", nearest(said, ("preemptible", "non-preemptible")))
    priority = PRIORITIES[name]
    return Group(queue, least or None, priority, said == "preemptible" if said else preemptible_by_priority(priority))
