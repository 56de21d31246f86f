"""The schema of an experiment's YAML: structure, types and ranges.

`simsched.experiment.validation` checks the rest, such as whether a policy exists and takes its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    create_model,
)

from simsched.applications import ApplicationsOptions
from simsched.documents import Section
from simsched.engine import EngineOptions
from simsched.experiment.cluster import ClusterSpec
from simsched.experiment.failures import FailuresSpec
from simsched.experiment.tuning import TuningOptions
from simsched.keys import INPUT_FILE, MOST_SECONDS
from simsched.model.cluster import TENANTS_PARAMETER, Tenant, circle, excess
from simsched.policy import Traits
from simsched.results.statistics import FIRST_LOOK
from simsched.workload import NAMED_SOURCES, WorkloadOptions

_GIVEN_TWICE = "lists the same value twice"


_Section = TypeVar("_Section", bound=Section)


def _printable(text: str) -> str:
    """Reject characters that figures cannot show."""
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


def _or_names(schema: dict[str, Any]) -> None:
    """Allow text for the items of a list in the JSON Schema: `Draft` writes it out before it is checked."""
    schema["items"] = {"anyOf": [schema["items"], {"type": "string"}]}


def _with_keys_of(options: type[Any]) -> Callable[[type[_Section]], type[_Section]]:
    """Add the declared fields of a dataclass of keys (`simsched.keys`) to a section.

    Raises `TypeError` if a key is declared in two ways, since one would silently hide the other.
    """
    declared = [one for kind in options.__mro__ if is_dataclass(kind) for one in fields(kind) if one.metadata]
    ways: dict[str, set[str]] = {}
    for one in declared:
        ways.setdefault(one.name, set()).add(repr((one.type, one.default, sorted(one.metadata.items()))))
    hidden = sorted(name for name, found in ways.items() if len(found) > 1)

    def add(section: type[_Section]) -> type[_Section]:
        twice = sorted({*hidden, *ways.keys() & section.model_fields})
        if twice:
            raise TypeError(f"{section.__name__}: declared in two ways: {', '.join(twice)}")
        hints = get_type_hints(options)
        keys: dict[str, Any] = {
            one.name: (hints[one.name], Field(default=one.default, **one.metadata))
            for one in fields(options)
            if one.metadata
        }
        made: type[_Section] = create_model(
            section.__name__, __base__=section, __module__=section.__module__, __doc__=section.__doc__, **keys
        )
        return made

    return add


@_with_keys_of(WorkloadOptions)
class WorkloadSpec(Section):
    """Which jobs are submitted, and when; see `simsched.workload.source.WorkloadOptions`."""

    path: str | None = Field(
        default=None, min_length=1, description="a trace, a workload CSV or a folder of these, instead of 'source'"
    )

    gpu_speed: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default={}, description="speed of jobs of fixed duration by GPU type; their durations are at speed 1"
    )

    offered_load: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="offered load to which the times between submissions are scaled: the jobs' GPUs times their solo "
        "seconds, relative to all GPUs times the span from the first submission to the last",
    )

    deadline_factor: float | tuple[float, float] | None = Field(
        default=None,
        description="deadline of each job as a multiple of its solo time on its requested GPUs; two numbers draw the "
        "factor between them",
    )
    deadline_share: float = Field(
        default=1, ge=0, le=1, description="share of the jobs to which 'deadline_factor' applies"
    )

    guaranteed_share: float = Field(
        default=0, ge=0, le=1, description="share of the jobs, drawn at random, that are guaranteed"
    )

    def _conflicts(self) -> Iterator[str]:
        factor = self.deadline_factor
        low, high = factor if isinstance(factor, tuple) else (factor, factor)
        if low is not None and high is not None and not 0 < low <= high <= MOST_SECONDS:
            yield f"deadline_factor must be above 0 and in ascending order, not {factor}"
        if self.offered_load is not None and self.load != 1:
            yield "give either 'load', a factor on the number of jobs, or 'offered_load'"

    @property
    def file(self) -> str | None:
        """The file or folder to read, if any: `path`, or a `source` that is not a name."""
        return self.path or (None if self.source in NAMED_SOURCES else self.source)

    if TYPE_CHECKING:
        source: str = ""
        recipe: str | None = None
        seed: int | None = None
        load: float = 1.0


@_with_keys_of(Tenant)
class TenantSpec(Section):
    """A tenant: see `simsched.model.cluster.Tenant`."""

    def build(self) -> Tenant:
        """Create the tenant."""
        return Tenant(**self.model_dump())


class SharingSpec(Section):
    """Sharing of a GPU between several jobs, and their speed."""

    max_jobs: int = Field(default=1, ge=1, le=16, description="most jobs on one GPU")
    model: Literal["constant", "time-slicing", "stages", "gaps", "pairs", "shares"] = Field(
        default="constant",
        description="speed of jobs that share a GPU; 'shares': as if alone, since their requested parts "
        "add up to at most one GPU",
    )
    factor: float | None = Field(
        default=None, gt=0, le=1, description="model 'constant': speed relative to a job alone; 1/k by default"
    )
    quantum_s: float = Field(default=60.0, gt=0, description="model 'time-slicing': seconds per time slice")
    switch_s: float = Field(default=0.0, ge=0, description="model 'time-slicing': seconds lost per time slice")
    pairs_path: Annotated[str | None, INPUT_FILE] = Field(
        default=None, min_length=1, description="model 'pairs': CSV of measured pairs"
    )
    default_speed: float | None = Field(
        default=None, gt=0, le=1.5, description="model 'pairs': speed of pairs that are not in the table"
    )


@_with_keys_of(EngineOptions)
class EngineSpec(Section):
    """How the simulated cluster behaves: see `simsched.engine.EngineOptions`."""

    sharing: SharingSpec = Field(default=SharingSpec(), description="sharing of GPUs between jobs")

    def _conflicts(self) -> Iterator[str]:
        for key in ("restart_delay_s", "node_start_s"):
            value = getattr(self, key)
            if self.tick_s == 1 and value != int(value):
                yield f"{key} must be a whole number, not {value:g}, unless tick_s is below 1"
        self.build()

    def build(self) -> EngineOptions:
        """Return the engine's settings; whole numbers are integers, so that whole seconds stay whole."""
        keys = self.model_dump(exclude={"sharing"})
        exact = {name: int(value) for name, value in keys.items() if isinstance(value, float) and value == int(value)}
        shares = self.sharing.model == "shares"
        return EngineOptions(**{**keys, **exact}, max_jobs_per_gpu=self.sharing.max_jobs, gpu_shares=shares)

    if TYPE_CHECKING:
        contention: bool = False
        initial_nodes: int | None = None
        tick_s: float = 1


class AgentSpec(Section):
    """Code that runs with the jobs of a policy and picks their batch sizes."""

    name: str = Field(min_length=1, description="registered name, package.module:Class or path/to/file.py:Class")
    params: dict[str, Any] = Field(default={}, description="parameters of the agent's constructor")


class ProcessSpec(Section):
    """A SimPy process that runs beside the cluster; see docs/how-to/processes.md."""

    use: str = Field(min_length=1, description="path/to/file.py:NAME or package.module:NAME of a function or class")
    params: dict[str, Any] = Field(default={}, description="parameters of the function or of the class's constructor")


class PolicySpec(Section):
    """A row of the comparison: a policy with its parameters and its own conditions."""

    name: str = Field(min_length=1, description="registered name, package.module:Class or path/to/file.py:Class")
    label: Annotated[str, AfterValidator(_printable)] | None = Field(
        default=None,
        min_length=1,
        description="its name in tables and figures; by default its name, or that of its class",
    )
    params: dict[str, Any] = Field(default={}, description="parameters of the policy's constructor")
    agent: AgentSpec | None = Field(
        default=None, description="agent that picks the batch sizes of its jobs; by default the policy's own"
    )
    workload: WorkloadSpec | None = Field(default=None, description="keys of 'workload' that differ for this policy")
    engine: EngineSpec | None = Field(default=None, description="keys of 'engine' that differ for this policy")

    @property
    def shown_as(self) -> str:
        """The label, by default the name."""
        return self.label or self.name


class FairnessSpec(Section):
    """The reference for a job's completion time; see `simsched.results.fairness`."""

    definition: Literal["pollux", "shockwave-static", "shockwave-themis", "gavel"] = Field(
        default="pollux", description="which of the definitions of finish-time fairness in the literature"
    )
    rounding: Literal["floor", "ceil", "interpolate"] = Field(
        default="floor", description="rounding of an equal share to a whole number of GPUs"
    )
    batch: Literal["best", "submitted", "profile"] = Field(
        default="best",
        description="batch size of the solo run: the best, as submitted if the policy does not adapt it, or as a "
        "profile predicts it from the job's batch rule, which needs a table of rates",
    )


class ShardsSpec(Section):
    """Cuts the jobs of each cell into parts that run in sequence or in parallel; the tables cover all jobs."""

    parts: int = Field(
        default=1, ge=1, le=10_000, description="number of parts with about the same number of jobs; 1 cuts nothing"
    )
    warm_up_s: float | None = Field(
        default=None,
        ge=0,
        le=MOST_SECONDS,
        description="seconds before and after a part whose jobs run with it, if the cluster is never empty; by "
        "default a tenth of a part; 0 cuts only while it is empty",
    )


class ReportSpec(Section):
    """How the results are shown."""

    reference: str | None = Field(default=None, description="label of the reference policy of comparisons")
    plots: bool = Field(default=True, description="whether to draw figures after the run")
    curves: str | None = Field(
        default=None, min_length=1, description="CSV (figure,panel,series,x,y) of published curves, drawn in grey"
    )
    follow: dict[str, Annotated[int, Field(ge=1, le=6)]] = Field(
        default={}, description="application -> number of its jobs that the figure 'co-adaptation' shows"
    )


#: The value of `seeds` that adds seeds until the comparisons are decided.
AUTO = "auto"


class SequentialSpec(Section):
    """When `seeds: auto` stops; see `simsched.results.compare`."""

    metric: str = Field(default="jct_mean_s", description="the metric whose comparisons with the reference decide")
    margin: float = Field(
        default=0.02, ge=0, lt=1, description="a ratio within this distance of 1 is decided: the two are equivalent"
    )
    most_seeds: int = Field(default=64, ge=2, le=10_000, description="most seeds")
    added: bool = Field(default=False, description="whether to add seeds; follows from 'seeds'")


def with_first_seeds(data: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment's data with the seeds of the first look if seeds are to be added."""
    rule, added = data.get("sequential"), data.get("seeds") == AUTO
    if not added and not isinstance(rule, dict):
        return data
    if not isinstance(rule, dict | None):
        return data | {"seeds": 1}  # the schema reports problems with the rule
    rule = {**(rule or {}), "added": added}
    most = rule.get("most_seeds")
    first = min(FIRST_LOOK, most) if isinstance(most, int) and most > 1 else FIRST_LOOK
    return data | {"sequential": rule} | ({"seeds": first} if added else {})


def _listed(seeds: Any) -> Any:
    """Convert a count n to the seeds 1 to n."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= 10_000:
            raise ValueError(f"a number of seeds must be between 1 and 10000, not {seeds}")
        return tuple(range(1, seeds + 1))
    if not isinstance(seeds, list):
        message = "must be a list of seeds, or how many to use"
        raise ValueError(message)  # noqa: TRY004 (pydantic collects ValueError only)
    if len({str(seed) for seed in seeds}) < len(seeds):
        raise ValueError(_GIVEN_TWICE)
    return tuple(seeds)


_SEEDS_SCHEMA = {
    "anyOf": [
        {"const": AUTO},
        {"type": "integer", "minimum": 1, "maximum": 10_000},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "uniqueItems": True},
    ]
}

Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...],
    Field(min_length=1),
    BeforeValidator(_listed),
    WithJsonSchema(_SEEDS_SCHEMA),
]


class ExperimentSpec(Section):
    """A whole experiment."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100, description="name of the results' folder"
    )
    description: str = Field(default="", description="purpose of the experiment")
    cluster: ClusterSpec = ClusterSpec()
    workload: WorkloadSpec = WorkloadSpec()
    tuning: TuningOptions | None = Field(default=None, description="hyper-parameter tuning, instead of 'workload'")
    applications: ApplicationsOptions = ApplicationsOptions()
    engine: EngineSpec = EngineSpec()
    failures: FailuresSpec = Field(default=FailuresSpec(), description="nodes and jobs that fail; by default none do")
    tenants: dict[str, TenantSpec] = Field(
        default={}, description="tenants of the cluster and their terms, for policies with tenants"
    )
    policies: tuple[PolicySpec, ...] = Field(
        min_length=1,
        description="policies to compare, in the order shown; a plain name means {name: ...}",
        json_schema_extra=_or_names,
    )
    isolated: bool = Field(
        default=False,
        description="whether policies that do not ship with simsched run behind a wall (docs/external.md)",
    )
    processes: tuple[ProcessSpec, ...] = Field(
        default=(),
        description="users' SimPy processes beside the cluster, in their order; plain text means {use: ...}",
        json_schema_extra=_or_names,
    )
    seeds: Seeds = Field(
        default=(1,), description="seeds, or how many to use (1, 2, ...), or 'auto': as many as the comparisons need"
    )
    sequential: SequentialSpec | None = Field(
        default=None, description="when 'seeds: auto' stops; no effect if seeds are listed"
    )
    sweep: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        default={}, description="dotted keys of this file and the values to try; all combinations are run"
    )
    diagnostics: tuple[str, ...] = Field(
        default=(), description="diagnostics that the policies should record, for instance 'gap'"
    )
    losses: bool = Field(
        default=False, description="record the loss curves of jobs, for the metrics 'time_to_90_mean_s' and others"
    )
    published: dict[str, dict[str, float]] = Field(
        default={}, description="label -> metric -> published value, for comparison"
    )
    published_source: str = Field(default="", description="source of the published values")
    published_by: Literal["testbed", "simulator"] = Field(
        default="testbed", description="origin of the published values; only a simulator's can be matched"
    )
    finish_time_fairness: FairnessSpec | None = Field(
        default=None, description="compare every job with its solo run, for the metrics 'rho_...'"
    )
    shards: ShardsSpec = Field(
        default=ShardsSpec(), description="cut long workloads into parts; by default they are not cut"
    )
    report: ReportSpec = ReportSpec()

    def _conflicts(self) -> Iterator[str]:
        if self.tuning is not None and "workload" in self.model_fields_set:
            yield "give either 'workload' or 'tuning', not both"
        if self.tuning is not None and any(policy.workload is not None for policy in self.policies):
            yield "a policy cannot have its own 'workload' together with 'tuning'"
        levels = [spec.level for spec in self.cluster.topology if not spec.within]
        rack_level = self.failures.rack_level
        if rack_level is not None and rack_level not in levels:
            known = f"it has {', '.join(levels)}" if levels else "it has none"
            yield f"failures.rack_level: 'cluster.topology' has no level '{rack_level}', {known}"
        engines = [self.engine, *(policy.engine for policy in self.policies if policy.engine is not None)]
        if any(one.contention for one in engines) and not self.cluster.build().tiered:
            yield "engine.contention: 'cluster.topology' declares no uplinks; give 'uplink_gb_s' of a tier"
        if self.failures.hot_spares and any(one.initial_nodes is not None for one in engines):
            yield "failures.hot_spares cannot be combined with rented nodes: leave out 'engine.initial_nodes'"
        tenants = {name: tenant.build() for name, tenant in self.tenants.items()}
        if wrong := excess(tenants) or circle(tenants):
            yield f"tenants: {wrong}"

    def params_of(self, policy: PolicySpec, traits: Traits) -> dict[str, Any]:
        """Return a policy's parameters, with the experiment's tenants if it reads them."""
        if not traits.reads_tenants or TENANTS_PARAMETER in policy.params or not self.tenants:
            return policy.params
        plain = {name: tenant.model_dump(exclude_unset=True) for name, tenant in sorted(self.tenants.items())}
        return {**policy.params, TENANTS_PARAMETER: plain}

    def workload_of(self, policy: PolicySpec) -> WorkloadSpec:
        """Return the workload of a policy."""
        return _merged(self.workload, policy.workload)

    def engine_of(self, policy: PolicySpec) -> EngineSpec:
        """Return a policy's engine settings."""
        return _merged(self.engine, policy.engine)

    def own_conditions(self, policy: PolicySpec) -> dict[str, Any]:
        """Return the engine and workload settings of this policy alone, by dotted key."""
        faced = {"engine": self.engine_of(policy), "workload": self.workload_of(policy)}
        usual = dict(_leaves({"engine": self.engine.model_dump(), "workload": self.workload.model_dump()}))
        own = _leaves({section: settings.model_dump() for section, settings in faced.items()})
        return {key: value for key, value in own if value != usual[key]}


def _leaves(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _merged(base: _Section, own: _Section | None) -> _Section:
    if own is None:
        return base
    return type(base).model_validate({**base.model_dump(exclude_unset=True), **own.model_dump(exclude_unset=True)})


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of experiment files, for completion and checks in editors."""
    schema = ExperimentSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "simsched experiment"}
