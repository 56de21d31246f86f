"""Checks and carries out decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simsched.engine.clock import Clock
from simsched.engine.errors import EngineError, InfeasibleDecisionError
from simsched.engine.failures import Nodes
from simsched.engine.ledger import Ledger
from simsched.engine.lifecycles import Watches
from simsched.engine.options import Terms
from simsched.engine.records import CANCELLED, Moves
from simsched.engine.state import ClusterState, JobState
from simsched.engine.validate import (
    Changes,
    change_faults,
    changes_of,
    host_of,
    leaving_faults,
    plain_changes,
    wish_faults,
)
from simsched.policy import Decision, Decline, Place


@dataclass(eq=False)
class Enactment:
    """Applies decisions to the `active` jobs through the ledger, nodes and watches."""

    _terms: Terms
    _clock: Clock
    _cluster: ClusterState
    _active: Mapping[str, JobState]
    _ledger: Ledger
    _nodes: Nodes
    _watches: Watches

    def check(self, decision: Decision) -> Changes:
        """Return what a decision changes; raises `InfeasibleDecisionError` if it is infeasible."""
        changes = plain_changes(decision, self._active, self._cluster)
        if changes is not None and decision.wake_at_s is None and not decision.watch:
            return changes
        self._refuse(wish_faults(decision, self._active, self._cluster.size, self._clock.now_s))
        if changes is not None:
            return changes
        changes = changes_of(decision, self._active)
        self._refuse(change_faults(changes, self._active, self._cluster, rigid=self._terms.rigid))
        if decision.nodes is not None:
            self._refuse(leaving_faults(decision.nodes, changes.gpus, self._active))
        return changes

    def _refuse(self, faults: Iterable[str]) -> None:
        reasons = list(faults)
        if reasons:
            raise InfeasibleDecisionError(self._terms.name, self._clock.now_s, reasons)

    def carry_out(self, changes: Changes, decision: Decision) -> Moves:
        """Carry out a checked decision; raises `InfeasibleDecisionError` if jobs do not fit on the GPUs they share."""
        for job_id, action in changes.actions.items() if changes.actions else ():
            if isinstance(action, Decline):
                self._active[job_id].declined = True
            elif isinstance(action, Place) and action.more:
                self._ledger.agree(self._active[job_id], action)
        try:
            moves = self._move(changes)
            if self._ledger.neighbourhood is not None or self._ledger.share_uplinks is not None:
                self._ledger.set_speeds()
        except EngineError as error:
            raise InfeasibleDecisionError(self._terms.name, self._clock.now_s, [str(error)]) from error
        if decision.nodes is not None:
            self._nodes.provision(set(decision.nodes))
        if decision.watch:
            self._ledger.tell(self._watches, first=True)
            for job_id, attained_gpu_s in decision.watch.items():
                self._watches.watch(self._active[job_id], attained_gpu_s)
        return moves

    def _move(self, changes: Changes) -> Moves:
        active, ledger = self._active, self._ledger
        placed = held = moved = 0
        for job_id, allocation in changes.gpus.items():
            job = active[job_id]
            if job.allocation:
                held += 1
                if allocation:
                    moved += 1
                if changes.actions and not changes.saves(job_id):
                    ledger.begin_anew(job)
                else:
                    ledger.release(job)
        for job_id in changes.cancelled if changes.actions else ():
            ledger.complete(active[job_id], CANCELLED)
        for job_id, allocation in changes.gpus.items():
            named = changes.actions.get(job_id) if changes.actions else None
            if not allocation:
                continue
            placed += 1
            if named is not None and isinstance(named, Place):
                ledger.place(active[job_id], allocation, named.beside, host_of(named), named.plan)
            else:
                ledger.place(active[job_id], allocation)
        return placed - moved, held - moved, moved
