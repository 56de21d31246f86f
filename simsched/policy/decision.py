"""What a policy wants done."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, NamedTuple

from simsched.model import NOTHING, Allocation
from simsched.model.plans import Plan

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Place:
    """The job holds the GPUs `at`, with more to say about it than plain GPUs do.

    It may share GPUs with the jobs `beside` it and gets the least shared of its nodes; or it gets exactly the GPUs of
    the job `onto`, which holds the same numbers and is not itself placed onto a third. `restart` places it again even
    on the same nodes. A job that moves and is not `saved` falls back to its last checkpoint, or to nothing without one,
    and its time limit begins again. `guaranteed` sets whether it is (see `Traits.guaranteed_first`); None leaves that
    as it is. `plan` is the plan of parallel training that it runs, if it knows any (None: its agent picks one);
    another plan than it runs is a restart. `uplink_level` says how urgent its communication is where jobs share
    uplinks, 0 being served first, `uplink_paths` which path it takes at each level of the cluster, the lowest first;
    None leaves that as it is (at first 0, and paths hashed from the job's id).
    """

    at: Allocation
    beside: Collection[str] = ()
    onto: str | None = None
    restart: bool = False
    saved: bool = True
    guaranteed: bool | None = None
    plan: Plan | None = None
    uplink_level: int | None = None
    uplink_paths: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The job loses its GPUs; where it is not `saved`, without notice, as in `Place`."""

    saved: bool = True
    at: ClassVar[Allocation] = NOTHING


@dataclass(frozen=True, slots=True)
class Cancel:
    """The job ends now, unfinished, in the final state `Cancelled`; its GPUs are free for the jobs placed."""

    at: ClassVar[Allocation] = NOTHING


@dataclass(frozen=True, slots=True)
class Decline:
    """The policy does not promise the job's deadline; the job holds `at` all the same."""

    at: Allocation = NOTHING


#: What happens to a job where GPUs alone do not say it.
Action = Place | Stop | Cancel | Decline
CANCEL: Final = Cancel()


class Decision(NamedTuple):
    """What happens to each job: `jobs` maps ids to the GPUs that they hold from now on, or to an action.

    What is not named `stops`, unless the `rest` `stays`. `wake_at_s` asks for one more decision at that second. `watch`
    asks for a decision at the very second at which a job's attained service reaches so many GPU-seconds, more than by
    now; a watch stays until it fires, is replaced, or the job finishes. `nodes` are those to provision from now on
    (None: as before): others go down at once and must be empty by then; those that are down come up after the start-up
    delay. `diagnostics` are numbers for the table of decisions. `renew_leases` ends the leases of running jobs at this
    decision, and begins new ones.

    >>> Decision({"a": ((0, 4),), "b": Place(((0, 4),), onto="a")}).allocations
    {'a': ((0, 4),), 'b': ((0, 4),)}
    """

    jobs: Mapping[str, Allocation | Action]
    rest: Literal["stops", "stays"] = "stops"
    wake_at_s: float | None = None
    watch: Mapping[str, float] = _NONE
    nodes: Collection[int] | None = None
    diagnostics: Mapping[str, float] = _NONE
    renew_leases: bool = False

    @classmethod
    def change(cls, start: Mapping[str, Allocation | Action], stop: Collection[str] = (), **more: object) -> Decision:
        """Make a decision that touches only the jobs named."""
        jobs = {**dict.fromkeys(stop, NOTHING), **start} if stop else start
        if not more:
            return tuple.__new__(cls, (jobs, *_DEFAULTS))  # half the time of a call of the class
        return cls(jobs, "stays", **more)  # type: ignore[arg-type]

    @property
    def allocations(self) -> dict[str, Allocation]:
        """The GPUs of the jobs that are named and hold some from now on."""
        placed = {job_id: new.at if isinstance(new, Action) else new for job_id, new in self.jobs.items()}
        return {job_id: at for job_id, at in placed.items() if at}


#: What stands behind the jobs of a decision that names those that change.
_DEFAULTS = Decision({}, "stays")[1:]


def no_decision(returned: object) -> str:
    """Say what is wrong with what a policy returned instead of a decision."""
    return f"decide returned {returned!r:.60}, and a Decision was expected, as in Decision({{job.id: ((node, gpus),)}})"
