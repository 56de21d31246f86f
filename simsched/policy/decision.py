"""The decisions of a policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar

from simsched.model import Allocation
from simsched.model.placement import NOTHING
from simsched.model.plans import Plan

T = TypeVar("T")

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Onto:
    """The job gets exactly the GPUs of another, which holds the same numbers and is not itself placed onto a third."""

    job: str


@dataclass(frozen=True, slots=True)
class Place:
    """The job holds the GPUs `at`, with further terms than plain GPUs express.

    It may share GPUs with the jobs `beside` it and gets the least shared ones on its nodes. `plan` is the plan of
    parallel training that it runs, if it has any (None: its agent picks one); a change of plan is a restart. `restart`
    places it again even on the same nodes. A job that moves and is not `saved` falls back to its last checkpoint, or to
    its start without one, and its time limit restarts. `more` are terms for the physics that understands them: `Onto`,
    `simsched.model.colocation.Guarantee`, `simsched.model.topology.Route`; others are refused.
    """

    at: Allocation
    beside: Collection[str] = ()
    plan: Plan | None = None
    restart: bool = False
    saved: bool = True
    more: tuple[object, ...] = ()

    def term(self, kind: type[T]) -> T | None:
        """Return the term of a kind, None without one."""
        return next((one for one in self.more if isinstance(one, kind)), None)


@dataclass(frozen=True, slots=True)
class Stop:
    """The job loses its GPUs; if it is not `saved`, without notice, as in `Place`."""

    saved: bool = True
    at: ClassVar[Allocation] = NOTHING


@dataclass(frozen=True, slots=True)
class Cancel:
    """The job ends now, unfinished, in the final state `Cancelled`; its GPUs are free for the jobs placed."""

    at: ClassVar[Allocation] = NOTHING


@dataclass(frozen=True, slots=True)
class Decline:
    """The policy does not promise the job's deadline; the job still holds `at`."""

    at: Allocation = NOTHING


#: What happens to a job if GPUs alone do not express it.
Action = Place | Stop | Cancel | Decline
CANCEL: Final = Cancel()


class Decision(NamedTuple):
    """What happens to each job: `jobs` maps ids to the GPUs that they hold from now on, or to an action.

    A job that is not named `stops`, unless the `rest` `stays`. `wake_at_s` requests a decision at that second. `watch`
    requests one at the second at which a job's attained service reaches a number of GPU-seconds above the current one;
    a watch stays until it fires, is replaced, or the job finishes. `nodes` are those to provision from now on (None: as
    before): others go down at once and must be empty by then; nodes that are down come up after the start-up delay.
    `diagnostics` are numbers for the table of decisions. `renew_leases` ends the leases of running jobs at this
    decision and starts new ones.

    >>> Decision({"a": ((0, 4),), "b": Place(((0, 4),), more=(Onto("a"),))}).allocations
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
        """Create a decision that affects only the jobs named."""
        jobs = {**dict.fromkeys(stop, NOTHING), **start} if stop else start
        if not more:
            return tuple.__new__(cls, (jobs, *_DEFAULTS))  # half the time of calling the class
        return cls(jobs, "stays", **more)  # type: ignore[arg-type]

    @property
    def allocations(self) -> dict[str, Allocation]:
        """The GPUs of the named jobs that hold some from now on."""
        placed = {job_id: new.at if isinstance(new, Action) else new for job_id, new in self.jobs.items()}
        return {job_id: at for job_id, at in placed.items() if at}


#: The remaining fields of a decision that names the jobs that change.
_DEFAULTS = Decision({}, "stays")[1:]


def no_decision(returned: object) -> str:
    """Describe what is wrong with a value that a policy returned instead of a decision."""
    return f"decide returned {returned!r:.60}, and a Decision was expected, as in Decision({{job.id: ((node, gpus),)}})"
