"""Where pods may go: labels, taints and affinity, as in Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simsched.manifests import Expression, Taint, Toleration

Labels = Mapping[str, str]
#: Effects of a taint that keep a pod without a toleration away.
REPELLING = frozenset({"NoSchedule", "NoExecute"})


#: Requirements that must all be met.
Term = tuple[Expression, ...]


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
