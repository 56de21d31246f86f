"""What a policy wants done."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from simsched.model import Allocation

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Decision(NamedTuple):
    """Allocations for jobs, either complete (a job not named holds nothing) or a change (the rest stays).

    `allocations` maps job ids to allocations. In a change, `stop` lists jobs that lose what they hold. `wake_at_s` asks
    for one more decision at that second. `watch` asks to be told, and to decide, at the very second at which a job's
    attained service reaches so many GPU-seconds, more than it has attained by now; a watch stays until it strikes, is
    replaced, or the job finishes. `target_nodes` names the nodes to provision from now on (None: as before): others go
    down at once and must be empty by then, and those that are down come up after the start-up delay. With
    `renew_leases` the leases of jobs that run in such end at this decision, and new ones begin. `beside` names,
    for a job that is placed, the jobs whose GPUs it may share: it gets the GPUs of its nodes that are least shared.
    `onto` names, for a job that is placed, the one whose very GPUs it gets; that one's allocation must be the same, and
    it may not itself be placed onto a third. Jobs in `anew` are placed again even where their nodes stay the same.
    Jobs in `cancel` end now, unfinished, with the final state `Cancelled`; what they held is free for those placed.
    Jobs in `unsaved` lose what they hold without notice: their progress falls back to their last checkpoint, or to
    nothing where jobs write none, and their time limits begin anew.
    Of the jobs in `declined` the policy says that it does not promise their deadline; they may run all the same.
    `guaranteed` says of jobs whether they are guaranteed (see `Policy.guaranteed_first`); else that is as they asked.
    `diagnostics` are numbers about the decision that end in the table of decisions.
    """

    allocations: Mapping[str, Allocation]
    complete: bool = True
    stop: Collection[str] = ()
    wake_at_s: float | None = None
    watch: Mapping[str, float] = _NOTHING
    diagnostics: Mapping[str, float] = _NOTHING
    target_nodes: Collection[int] | None = None
    renew_leases: bool = False
    beside: Mapping[str, Collection[str]] = _NOTHING
    onto: Mapping[str, str] = _NOTHING
    anew: Collection[str] = ()
    cancel: Collection[str] = ()
    declined: Collection[str] = ()
    unsaved: Collection[str] = ()
    guaranteed: Mapping[str, bool] = _NOTHING

    @classmethod
    def change(cls, start: Mapping[str, Allocation], stop: Collection[str] = (), **rest: object) -> Decision:
        """Make a decision that touches only the jobs named."""
        if not rest:
            return tuple.__new__(cls, (start, False, stop, *_THE_REST))  # half the time of a call of the class
        return cls(start, complete=False, stop=stop, **rest)  # type: ignore[arg-type]


#: The defaults of what stands behind `stop`.
_THE_REST = Decision({})[3:]


def no_decision(returned: object) -> str:
    """Say what is wrong with what a policy returned instead of a decision."""
    return f"decide returned {returned!r:.60}, and a Decision was expected, as in Decision({{job.id: ((node, gpus),)}})"
