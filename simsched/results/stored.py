"""The format of a run's JSON files, which are checked when read.

Unknown keys are ignored. Numbers are finite, and paths stay below the folder of the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from simsched.errors import InputError, Problem, first_line, input_error
from simsched.outlets import one_line, shortened
from simsched.reading import MOST_DOCUMENT_BYTES, open_bytes
from simsched.results.sheets import CurvePoint

#: The key of a point for the files of a folder of workloads, which count as replications.
WORKLOAD_FILE = "workload"
RUN_AGAIN = "run the experiment again, which repeats only what is missing or damaged"
#: Larger than any result in any unit; arithmetic on two such numbers stays finite.
_LARGEST = 1e30
_LONGEST_SHOWN = 60


@dataclass(frozen=True)
class Within:
    """The range of a number."""

    least: float
    most: float


class Below:
    """A path of a file or folder below that of the run."""


Count = Annotated[int, Within(0, 10**9)]
Place = Annotated[str, Below()]


class _Entry(TypedDict):
    cell: Place
    folder: Place
    policy: str
    seed: int
    point: dict[str, Any]


class CellEntry(_Entry, total=False):
    """A cell in `run.json`."""

    policy_name: str
    own: dict[str, Any]


class Fairness(TypedDict):
    """The ratios of finish-time fairness in `run.json`."""

    definition: Literal["pollux", "shockwave-static", "shockwave-themis", "gavel"]
    rounding: Literal["floor", "ceil", "interpolate"]
    batch: Literal["best", "submitted", "profile"]
    folder: Place


class _Named(TypedDict):
    name: str


class _PolicyEntry(_Named, total=False):
    label: str
    params: dict[str, Any]


class _Report(TypedDict, total=False):
    reference: str
    follow: dict[str, Count]


class _Experiment(TypedDict, total=False):
    description: str
    policies: list[_PolicyEntry]
    published_by: str
    published_source: str
    report: _Report


class _Run(TypedDict):
    name: str
    cells: list[CellEntry]


class RunIndex(_Run, total=False):
    """`run.json`."""

    missing: list[str]
    failed: dict[str, Any]
    changed: list[str]
    published: dict[str, dict[str, float]]
    published_source: str
    published_curves: list[CurvePoint]
    fairness: Fairness
    experiment: _Experiment


class _Policy(TypedDict, total=False):
    label: str
    name: str
    params: dict[str, Any]


class _Group(TypedDict):
    nodes: Annotated[int, Within(1, 10**6)]
    gpus_per_node: Annotated[int, Within(1, 10**4)]
    gpu_type: str


class _Failures(TypedDict, total=False):
    node_mtbf_s: float
    gpu_mtbf_s: float
    rack_mtbf_s: float
    slow_nodes: float
    listed_outages: Count
    jobs: str
    repair_median_s: float
    weibull_shape: float
    checkpoint_cost_s: float | str


class _Engine(TypedDict, total=False):
    restart_delay_s: float
    max_jobs_per_gpu: Count
    contention: bool
    interference: float


class _Agent(TypedDict):
    name: str


class _Sharing(TypedDict, total=False):
    model: str


class _Environment(TypedDict, total=False):
    packages: dict[str, str]


class File(TypedDict):
    """Another file of the folder in a manifest."""

    bytes: Annotated[int, Within(0, 2**63)]
    sha256: str


#: The other files of a cell by name.
Files = dict[Place, File]


class Manifest(TypedDict, total=False):
    """`manifest.json` of a cell."""

    policy: str | _Policy
    policy_name: str
    policy_knows: dict[str, str]
    policy_rigid: bool
    seed: int
    point: dict[str, Any]
    workload: str | dict[str, Any]
    cluster: list[_Group]
    jobs: Count
    jobs_hash: str
    left_out: dict[str, Count]
    offered_load: float
    without: dict[str, str]
    agent: _Agent
    agents: dict[str, str]
    engine: _Engine
    failures: _Failures
    sharing: _Sharing
    environment: _Environment
    files: Files


class Losses(TypedDict):
    """An application in `losses.json`."""

    progress: list[float]
    loss: list[float]


#: `summary.json` of a cell.
Summary = dict[str, float]


def read_json(path: Path, shape: object = dict[str, Any]) -> dict[str, Any]:
    """Read a JSON object of one of the shapes of this module.

    Raises `InputError` for a file that is missing, is not a JSON object, or has invalid values, naming every place.
    """
    try:
        content = json.loads(_text(Path(path)), parse_constant=_no_number)
    except FileNotFoundError as error:
        raise input_error(path, "the file is not there", RUN_AGAIN) from error
    except json.JSONDecodeError as error:
        raise input_error(path, f"is not valid JSON ({error.msg})", RUN_AGAIN, line=error.lineno) from error
    except RecursionError as error:
        raise input_error(path, "is nested too deeply", RUN_AGAIN) from error
    except (OSError, ValueError) as error:
        raise input_error(path, f"cannot be read ({first_line(error)})", RUN_AGAIN) from error
    if not isinstance(content, dict):
        raise input_error(path, "is not a JSON object", RUN_AGAIN)
    found = list(faults(content, shape))
    if found:
        raise InputError(*(Problem(f"{path}: {place}", fault, RUN_AGAIN) for place, fault in found))
    return content


def _text(path: Path) -> str:
    if path.suffix != ".gz":
        return path.read_text(encoding="utf-8")
    with open_bytes(path, MOST_DOCUMENT_BYTES) as stream:
        return stream.read().decode("utf-8")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def faults(value: object, kind: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Return where a value violates its type (a place like `cells[0].seed`), and how."""
    if kind is Any:
        return
    origin, inner = _parts(kind)
    if origin is Annotated:
        found = list(faults(value, inner[0], place))
        yield from found or _beyond(value, inner[1], place)
    elif origin in (Union, UnionType):
        if all(any(faults(value, one, place)) for one in inner):
            yield place, f"is {_shown(value)}, not {' or '.join(map(_called, inner))}"
    elif origin is Literal:
        if value not in inner:
            yield place, f"is {_shown(value)}, not one of {', '.join(map(str, inner))}"
    elif not _is(value, origin or kind):
        yield place, f"is {_shown(value)}, not {_called(kind)}"
    elif is_typeddict(kind):
        yield from _keys_at_fault(value, kind, place)
    elif isinstance(value, dict):
        for key, held in value.items():
            yield from _inside(place, key, faults(key, inner[0]))
            yield from _inside(place, key, faults(held, inner[1]))
    elif isinstance(value, list):
        kinds = _fields(kind) if origin is None else inner * len(value)
        if len(kinds) != len(value):
            yield place, f"has {len(value)} parts, not {len(kinds)}"
        for number, (held, one) in enumerate(zip(value, kinds, strict=False)):
            yield from faults(held, one, f"{place}[{number}]")


def _keys_at_fault(value: Any, kind: Any, place: str) -> Iterator[tuple[str, str]]:
    needed = kind.__required_keys__
    for key, one in _hints(kind).items():
        held = value.get(key)
        if key in needed and key not in value:
            yield _below(place, key), "is not there"
        elif key in needed or not (held is None or (held == {} and is_typeddict(one))):
            yield from _inside(place, key, faults(held, one))


def _inside(place: str, key: object, found: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the faults of the value of a key, named only if there is a fault."""
    for inner, fault in found:
        yield f"{_below(place, key)}{'.' * (inner[:1] not in ('', '['))}{inner}", fault


def _beyond(value: Any, bound: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(bound, Within) and not bound.least <= value <= bound.most:
        yield place, f"is {_shown(value)}, not between {bound.least} and {bound.most}"
    if isinstance(bound, Below) and not _leads_below(value):
        yield place, f"is {_shown(value)}, which leads out of the run"


def _leads_below(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and ".." not in parts and parts[0] != "/" and not set(path) & {"\0", "\\"}


def _is(value: object, kind: Any) -> bool:
    if kind is str:  # a lone surrogate is not text: no file and no table could hold it
        return isinstance(value, str) and (value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value))
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if kind is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and math.isfinite(value) and abs(value) <= _LARGEST  # type: ignore[arg-type]
    if is_typeddict(kind) or kind is dict:
        return isinstance(value, dict)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return isinstance(value, list)
    return isinstance(value, kind)


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _fields(kind: Any) -> tuple[Any, ...]:
    return tuple(_hints(kind).values())


def _below(place: str, key: object) -> str:
    name = shortened(one_line(str(key)), _LONGEST_SHOWN)
    return f"{place}.{name}" if place else name


def _shown(value: object) -> str:
    """Show a value as JSON, if it is short."""
    if isinstance(value, (dict, list)) and value:
        return "a mapping" if isinstance(value, dict) else "a list"
    return shortened(one_line(json.dumps(value, ensure_ascii=False)), _LONGEST_SHOWN)


def _called(kind: Any) -> str:
    names: dict[Any, str] = {str: "a text", int: "a whole number", float: "a number", list: "a list", NoneType: "null"}
    origin = get_origin(kind)
    return _called(get_args(kind)[0]) if origin is Annotated else names.get(origin or kind, "a mapping")
