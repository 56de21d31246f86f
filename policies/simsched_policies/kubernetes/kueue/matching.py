"""Matching of pods and nodes: labels, taints, tolerations and affinity, as in Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Labels = Mapping[str, str]
Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
#: Effects of a taint that keep a pod without a toleration away.
REPELLING = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True)
class Taint:
    """A mark on nodes that repels pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        """Return the taint as Kueue prints it."""
        return f"{{{self.key} {self.value} {self.effect} <nil>}}"


@dataclass(frozen=True)
class Toleration:
    """Which taints a pod accepts; an empty key with `Exists` accepts all, an empty effect every effect."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""

    def accepts(self, taint: Taint) -> bool:
        """Return whether a pod with this toleration accepts the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


@dataclass(frozen=True)
class Requirement:
    """A requirement on a label; `Gt` and `Lt` compare integers."""

    key: str
    operator: Operator = "In"
    values: tuple[str, ...] = ()

    def met(self, labels: Labels) -> bool:
        """Return whether `labels` meet the requirement; labels without the key meet only negations."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        if value is None or not _whole(value) or len(self.values) != 1 or not _whole(self.values[0]):
            return False
        return int(value) > int(self.values[0]) if self.operator == "Gt" else int(value) < int(self.values[0])


def _whole(text: str) -> bool:
    return re.fullmatch("-?[0-9]{1,18}", text) is not None


#: Requirements that must all be met.
Term = tuple[Requirement, ...]


@dataclass(frozen=True)
class Constraints:
    """Where the pods of a set may go: labels, required affinity (any of its terms; None: anywhere), tolerations.

    `preferred` lists weighted terms that nodes should preferably meet.
    """

    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    preferred: tuple[tuple[int, Term], ...] = ()

    def repelled(self, taints: Iterable[Taint], also: Iterable[Toleration] = ()) -> Taint | None:
        """Return the first taint that neither the pods nor `also` tolerate."""
        repelling = (taint for taint in taints if taint.effect in REPELLING)
        accepted = (*self.tolerations, *also)
        return next((taint for taint in repelling if not any(one.accepts(taint) for one in accepted)), None)

    def matches(self, labels: Labels, keys: frozenset[str] | None = None) -> bool:
        """Return whether nodes with `labels` are suitable; with `keys` only requirements on these labels count.

        A term that `keys` leaves empty is met (Kueue, flavour assignment).
        """
        if any(labels.get(key) != value for key, value in self.selector if keys is None or key in keys):
            return False
        if self.affinity is None:
            return True
        return any(
            all(one.met(labels) for one in term if keys is None or one.key in keys) and (bool(term) or keys is not None)
            for term in self.affinity
        )


#: Pods without requirements.
ANYWHERE = Constraints()
