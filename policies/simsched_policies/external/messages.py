"""The messages between simsched and a scheduler in another process: one JSON object a line (docs/external.md).

Each is declared once. The schema, the tables of the page and the check of what a client sends follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError

from simsched.errors import nearest
from simsched.model import Allocation
from simsched.model.colocation import Guarantee
from simsched.model.placement import NOTHING
from simsched.model.plans import Plan
from simsched.model.topology import Route
from simsched.policy import CANCEL, Action, Decision as Made, Decline, Onto, Place, Stop

VERSION = 1

Number = int | float
Gpus = tuple[tuple[int, int], ...]


class _Fields(BaseModel):
    """What has these fields and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Hello(_Fields):
    """The first message: the cluster, and what the client will be told."""

    type: Literal["hello"] = "hello"
    version: int = Field(description="version of the protocol")
    nodes: list[tuple[int, int, str]] = Field(description="runs of equal nodes: how many, GPUs of each, their type")
    signals: list[str] = Field(description="what is told of jobs, in the order of `told`")
    restart_delay_s: Number = Field(description="seconds that a change of placement costs")
    seed: int = Field(description="for the client's own random stream")
    params: dict[str, Any] = Field(description="as in the experiment")


class Ready(_Fields):
    """The answer to `hello`."""

    type: Literal["ready"] = "ready"
    version: int = Field(description="version of the protocol that the client speaks")


class Decide(_Fields):
    """A decision is due; empty fields are left out."""

    type: Literal["decide"] = "decide"
    now_s: Number = Field(description="seconds since the start of the workload")
    arrived: list[dict[str, Any]] = Field(
        default_factory=list, description="requests: fields of `JobRequest` other than its defaults"
    )
    finished: list[str] = Field(default_factory=list, description="jobs that have ended since the last decision")
    lost: list[str] = Field(default_factory=list, description="jobs that lost their GPUs to a failure")
    reached: list[str] = Field(
        default_factory=list, description="jobs that attained the service that `watch` asked for"
    )
    free: list[tuple[int, int]] = Field(
        default_factory=list, description="[node, free GPUs] of nodes where that has changed"
    )
    up: list[tuple[int, bool]] = Field(
        default_factory=list, description="[node, whether it is up] where that has changed"
    )
    told: dict[str, list[Any]] = Field(
        default_factory=dict, description="the signals of each job that arrived, lost its GPUs, or runs"
    )
    held: list[tuple[str, Gpus, int, Number | None, list[str]]] = Field(
        default_factory=list,
        description="to a policy in Python: jobs with new GPUs, with starts, first start and neighbours",
    )
    python: str = Field("", description="to a policy in Python: objects that JSON has no words for, pickled, in Base64")


class Placed(_Fields):
    """An action of `jobs`: the job holds GPUs on further terms."""

    place: Gpus = Field(description="[[node, GPUs], ...]")
    beside: tuple[str, ...] = Field((), description="jobs with which it may share them")
    onto: str | None = Field(None, description="the job whose very GPUs it gets")
    plan: dict[str, Any] | None = Field(None, description="plan of parallel training: fields of `Plan`")
    guarantee: bool | None = Field(None, description="whether it is guaranteed its speed (null: as before)")
    route: tuple[int, tuple[int, ...] | None] | None = Field(None, description="urgency of its traffic, and its paths")
    restart: bool = Field(False, description="whether it starts again even where it is")
    saved: bool = Field(True, description="whether it saves its progress before it moves")


class Stopped(_Fields):
    """An action of `jobs`: the job loses its GPUs."""

    stop: Literal["saved", "lost"] = Field(description="what becomes of its progress")


class Declined(_Fields):
    """An action of `jobs`: its deadline is not promised."""

    decline: Gpus = Field(description="the GPUs that it holds nonetheless, [] for none")


_ACTIONS = {"place": "placed", "stop": "stopped", "decline": "declined"}
#: Parts of the place of a fault that are no names of fields.
_BRANCHES = frozenset({*_ACTIONS.values(), "gpus", "int", "float"})


def _kind(action: Any) -> str | None:
    if isinstance(action, dict):
        return next((kind for name, kind in _ACTIONS.items() if name in action), None)
    return "gpus" if isinstance(action, list) else "cancel" if isinstance(action, str) else None


_Action = Annotated[
    Annotated[Gpus, Tag("gpus")] | Annotated[Literal["cancel"], Tag("cancel")] | Annotated[Placed, Tag("placed")]
    | Annotated[Stopped, Tag("stopped")] | Annotated[Declined, Tag("declined")], Discriminator(_kind)
]  # fmt: skip


class Decision(_Fields):
    """The answer to `decide`; all fields may be left out."""

    type: Literal["decision"] = "decision"
    jobs: dict[str, _Action] = Field(
        default_factory=dict,
        description="what becomes of each job: [[node, GPUs], ...] ([] stops it), "
        '"cancel", or one of the actions below',
    )
    rest: Literal["stays", "stops"] = Field("stays", description="what becomes of jobs that are not named")
    wake_at_s: Number | None = Field(None, description="second at which to decide again")
    watch: dict[str, Number] = Field(
        default_factory=dict, description="attained GPU-seconds of jobs at which to decide again"
    )
    nodes: tuple[int, ...] | None = Field(None, description="nodes to provision from now on (null: as before)")
    diagnostics: dict[str, Number] = Field(default_factory=dict, description="numbers for the table of decisions")
    renew_leases: bool = Field(False, description="whether the leases of all running jobs begin anew")
    order: list[str] | dict[str, Number | bool | tuple[Number | bool, ...]] = Field(
        default_factory=list,
        description="jobs as they were considered, the most urgent first, with their scores if they have any",
    )
    ranks: dict[str, int] = Field(default_factory=dict, description="their ranks, where these are not 1, 2, 3 ...")
    waits: dict[str, tuple[str, str]] = Field(
        default_factory=dict, description="why jobs wait: a reason of `simsched why`, and details"
    )


class Call(_Fields):
    """To a policy in Python: another method of it, or of the agent of a job, is called."""

    type: Literal["call"] = "call"
    what: str = Field(description="`describe`, `begin`, `check_jobs`, `artifacts`, `agent`, or a method of an agent")
    job: str = Field("", description="the job of the agent")
    python: str = Field("", description="the arguments, pickled, in Base64")


class Done(_Fields):
    """The answer to `call`."""

    type: Literal["done"] = "done"
    value: Any = Field(None, description="what the method returns")


class Ask(_Fields):
    """Before the answer to `decide` or `call`: a policy in Python reads signals when it needs them."""

    type: Literal["ask"] = "ask"
    signal: str = Field(description="a declared signal, or `attained_gpu_s`, `held_s` or `age_s`")
    jobs: list[str] = Field(description='jobs that are asked about, [""] for a signal of the whole view')
    member: str = Field("", description="the member of the signal, such as `seconds` of `remaining_work`")
    args: list[Any] | None = Field(None, description="arguments of a call")
    named: dict[str, Any] = Field(default_factory=dict, description="arguments of a call by name")


class Answer(_Fields):
    """The answer to `ask`."""

    type: Literal["answer"] = "answer"
    python: str = Field(description="for each job whether there is a value, and the value or error; pickled, in Base64")


class Failed(_Fields):
    """A policy in Python raised an error; the run ends."""

    type: Literal["failed"] = "failed"
    error: str = Field("", description="the error with its place")
    problems: list[tuple[str, str, str, int]] = Field(
        default_factory=list, description="of an `InputError`: place, message, remedy, line"
    )


class Refused(_Fields):
    """The answer breaks the rules; the run ends."""

    type: Literal["refused"] = "refused"
    why: str = Field(description="what is wrong, and with which job or field")


class End(_Fields):
    """The run is over."""

    type: Literal["end"] = "end"


#: The messages by who sends them, and the actions of a decision.
FROM_SIMSCHED: tuple[type[_Fields], ...] = (Hello, Decide, Refused, End, Call, Answer)
FROM_CLIENT: tuple[type[_Fields], ...] = (Ready, Decision, Ask, Done, Failed)
ACTIONS: tuple[type[_Fields], ...] = (Placed, Stopped, Declined)

Message = TypeVar("Message", bound=_Fields)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of all messages."""
    messages = [Annotated[one, Tag(_name(one))] for one in (*FROM_SIMSCHED, *FROM_CLIENT)]
    union: Any = messages[0]
    for one in messages[1:]:
        union = union | one
    return TypeAdapter(Annotated[union, Field(discriminator="type")]).json_schema()


def messages_markdown() -> str:
    """Return the tables of the page of the protocol."""
    return "\n".join(line for one in (*FROM_SIMSCHED, *FROM_CLIENT, *ACTIONS) for line in _table(one))


def _table(message: type[_Fields]) -> Iterator[str]:
    who = {FROM_SIMSCHED: "simsched: ", FROM_CLIENT: "program: "}
    said = next((words for group, words in who.items() if message in group), "in `jobs`: ")
    yield f"**{said}`{_name(message)}`.** {message.__doc__}\n"
    rows = [(name, one) for name, one in message.model_json_schema()["properties"].items() if name != "type"]
    if rows:
        yield from ("| field | JSON | meaning |", "|---|---|---|")
        yield from (f"| `{name}` | {_json(one)} | {one['description']} |" for name, one in rows)
        yield ""


def _json(field: Mapping[str, Any]) -> str:
    """Name the JSON types of a field."""
    kinds = [one for part in field.get("anyOf", (field,)) for one in [part.get("type", "text")]]
    shown = [{"integer": "whole number", "string": "text"}.get(one, one) for one in dict.fromkeys(kinds)]
    return " or ".join(one for one in shown if not (one == "whole number" and "number" in shown))


def _name(message: type[_Fields]) -> str:
    return str(message.model_fields["type"].default) if "type" in message.model_fields else message.__name__.lower()


@lru_cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: type[Message], line: bytes) -> Message:
    """Return a message of a kind; `ValueError` with the first thing that is wrong with it."""
    try:
        return _reader(kind).validate_json(line)  # type: ignore[no-any-return]
    except ValidationError as error:
        raise ValueError(_fault(kind, error.errors(include_url=False)[0])) from None


def _fault(kind: type[_Fields], fault: Any) -> str:
    """Describe what is wrong, with the place and the nearest name."""
    if fault["type"] == "json_invalid":
        return f"it is no JSON: {fault['ctx']['error']}"
    within = next((one for one in ACTIONS if one.__name__.lower() in fault["loc"]), kind)
    *place, last = [part for part in fault["loc"] if part not in _BRANCHES and "[" not in str(part)] or ["type"]
    shown = ".".join(map(str, place)) or _name(kind)
    if fault["type"] == "extra_forbidden":
        return f"'{last:.40}' is no field of '{shown:.60}'; {nearest(str(last), within.model_fields)}"
    if last == "type":
        return f"a message of the type '{_name(kind)}' was expected"
    if fault["type"].startswith("union_tag"):
        return f"job '{last!s:.40}' has {fault['input']!r:.60}, which is no action"
    return f"'{last}' of '{shown:.60}' is {fault['input']!r:.40}: {fault['msg']}"


def ready(line: bytes) -> None:
    """Raise `ValueError` unless a line is the answer to `hello` of a client of this version."""
    version = read(Ready, line).version
    if version != VERSION:
        raise ValueError(f"it speaks version {version} of the protocol, and this is version {VERSION}")


def decision(line: bytes) -> tuple[Made, Decision]:
    """Return a client's decision, and all that it said; `ValueError` if it breaks the rules."""
    said = read(Decision, line)
    return decided(said), said


def decided(said: Decision) -> Made:
    """Return the decision of a message; `ValueError` if it is none."""
    jobs = {job: _action(job, one) for job, one in said.jobs.items()}
    more = (said.rest, said.wake_at_s, said.watch, said.nodes, said.diagnostics, said.renew_leases)
    return Made(jobs, *more)


def _action(job: str, one: Any) -> Allocation | Action:
    if isinstance(one, tuple):
        return one or NOTHING
    if one == "cancel":
        return CANCEL
    if isinstance(one, Stopped):
        return Stop(one.stop == "saved")
    if isinstance(one, Declined):
        return Decline(one.decline or NOTHING)
    terms: list[object] = [] if one.onto is None else [Onto(one.onto)]
    terms += [Guarantee(one.guarantee)] if "guarantee" in one.model_fields_set else []
    terms += [] if one.route is None else [Route(*one.route)]
    try:
        plan = None if one.plan is None else Plan(**one.plan)
    except TypeError as error:
        raise ValueError(f"the plan of job '{job:.40}': {error}") from None
    return Place(one.place or NOTHING, one.beside, plan, one.restart, one.saved, tuple(terms))


def placed(place: Place) -> dict[str, Any]:
    """Return the action of a place, as a client in Python sends it."""
    told: dict[str, Any] = {"place": place.at, "beside": tuple(place.beside)}
    told |= {"restart": place.restart, "saved": place.saved}
    if place.plan is not None:
        told["plan"] = vars(place.plan)
    for term in place.more:
        if isinstance(term, Onto):
            told["onto"] = term.job
        elif isinstance(term, Guarantee):
            told["guarantee"] = term.kept
        elif isinstance(term, Route):
            told["route"] = tuple(term)
        else:
            raise TypeError(f"a place has a term that no message carries: {term!r:.60}")
    return told
