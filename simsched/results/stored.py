"""The format of a run's JSON files, which are checked when read.

Unknown keys are ignored, and a key that may be absent may be null. Numbers are finite, and paths stay below the folder
of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Required, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from simsched.documents import say
from simsched.errors import InputError, Problem, first_line, input_error
from simsched.outlets import one_line, shortened
from simsched.reading import MOST_DOCUMENT_BYTES, open_bytes
from simsched.results.sheets import CurvePoint

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

T = TypeVar("T")

#: The key of a point for the files of a folder of workloads, which count as replications.
WORKLOAD_FILE = "workload"
RUN_AGAIN = "run the experiment again, which repeats only what is missing or damaged"
#: Larger than any result in any unit; arithmetic on two such numbers stays finite.
_LARGEST = 1e30
_LONGEST_SHOWN = 60


def _below_the_run(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or parts[0] == "/" or set(path) & {"\0", "\\"}:
        raise ValueError(f"is '{path}', which leads out of the run")
    return path


Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Whole = Annotated[int, Field(gt=-(2**63), lt=2**63)]
Count = Annotated[int, Field(ge=0, le=10**9)]
#: A path of a file or folder below that of the run.
Place = Annotated[str, AfterValidator(_below_the_run)]
#: A mapping that may be empty instead of absent.
Maybe = Annotated[T | None, BeforeValidator(lambda value: value or None)]
#: A mapping, or the name that is all it would hold.
Named = Annotated[T, BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)]
NumberOrText = Annotated[Number | None, BeforeValidator(lambda value: None if isinstance(value, str) else value)]


class CellEntry(TypedDict, total=False):
    """A cell in `run.json`."""

    cell: Required[Place]
    folder: Required[Place]
    policy: Required[str]
    seed: Required[Whole]
    point: Required[dict[str, Any]]
    policy_name: str | None
    own: dict[str, Any] | None


class Fairness(TypedDict):
    """The ratios of finish-time fairness in `run.json`."""

    definition: Literal["pollux", "shockwave-static", "shockwave-themis", "gavel"]
    rounding: Literal["floor", "ceil", "interpolate"]
    batch: Literal["best", "submitted", "profile"]
    folder: Place


class _Policy(TypedDict, total=False):
    label: str | None
    name: str | None
    params: dict[str, Any] | None


class _PolicyEntry(TypedDict, total=False):
    name: Required[str]
    label: str | None
    params: dict[str, Any] | None


class _Report(TypedDict, total=False):
    reference: str | None
    follow: dict[str, Count] | None


class _Experiment(TypedDict, total=False):
    description: str | None
    policies: list[_PolicyEntry] | None
    published_by: str | None
    published_source: str | None
    report: _Report | None


class RunIndex(TypedDict, total=False):
    """`run.json`."""

    name: Required[str]
    cells: Required[list[CellEntry]]
    missing: list[str] | None
    failed: dict[str, Any] | None
    changed: list[str] | None
    published: dict[str, dict[str, Number]] | None
    published_source: str | None
    published_curves: list[CurvePoint] | None
    fairness: Maybe[Fairness]
    experiment: _Experiment | None


class _Group(TypedDict):
    nodes: Annotated[int, Field(ge=1, le=10**6)]
    gpus_per_node: Annotated[int, Field(ge=1, le=10**4)]
    gpu_type: str


class _Failures(TypedDict, total=False):
    node_mtbf_s: Number | None
    gpu_mtbf_s: Number | None
    rack_mtbf_s: Number | None
    slow_nodes: Number | None
    listed_outages: Count | None
    jobs: str | None
    repair_median_s: Number | None
    weibull_shape: Number | None
    checkpoint_cost_s: NumberOrText


class _Engine(TypedDict, total=False):
    restart_delay_s: Number | None
    max_jobs_per_gpu: Count | None
    contention: bool | None
    interference: Number | None


class _Agent(TypedDict):
    name: str


class _Sharing(TypedDict, total=False):
    model: str | None


class _Environment(TypedDict, total=False):
    packages: dict[str, str] | None


class File(TypedDict):
    """Another file of the folder in a manifest."""

    bytes: Annotated[int, Field(ge=0, le=2**63)]
    sha256: str


class Listed(TypedDict, total=False):
    """The other files of a cell by name, in its manifest."""

    files: dict[Place, File]


class Manifest(Listed, total=False):
    """`manifest.json` of a cell."""

    policy: Named[_Policy | None]
    policy_name: str | None
    policy_knows: dict[str, str] | None
    policy_rigid: bool | None
    seed: Whole | None
    point: dict[str, Any] | None
    workload: Named[dict[str, Any] | None]
    cluster: list[_Group] | None
    jobs: Count | None
    jobs_hash: str | None
    left_out: dict[str, Count] | None
    offered_load: Number | None
    without: dict[str, str] | None
    agent: Maybe[_Agent]
    agents: dict[str, str] | None
    engine: _Engine | None
    failures: _Failures | None
    sharing: _Sharing | None
    environment: _Environment | None


class Losses(TypedDict):
    """An application in `losses.json`."""

    progress: list[Number]
    loss: list[Number]


#: `summary.json` of a cell.
Summary = dict[str, Number]


def read_json(path: Path, shape: Any = dict[str, Any]) -> dict[str, Any]:
    """Read a JSON object of one of the shapes of this module.

    Raises `InputError` for a file that is missing, is not a JSON object, or has invalid values, naming every place.
    """
    try:
        text = _text(Path(path))
        content = json.loads(text, parse_constant=_no_number)
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
    found = list(faults(text, shape))
    if found:
        raise InputError(
            *(Problem(f"{path}: {place}" if place else str(path), fault, RUN_AGAIN) for place, fault in found)
        )
    return content


def _text(path: Path) -> str:
    if path.suffix != ".gz":
        return path.read_text(encoding="utf-8")
    with open_bytes(path, MOST_DOCUMENT_BYTES) as stream:
        return stream.read().decode("utf-8")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def faults(text: str, shape: Any) -> Iterator[tuple[str, str]]:
    """Yield where JSON is not of a shape, as in `cells[0].seed`, and how."""
    try:
        _adapter(shape).validate_json(text, strict=True)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            yield _place(detail), one_line(say(detail))


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _place(detail: ErrorDetails) -> str:
    parts = (part for part in detail["loc"] if part != "[key]")
    names = (
        f"[{part}]" if isinstance(part, int) else f".{shortened(one_line(part), _LONGEST_SHOWN)}" for part in parts
    )
    return "".join(names).removeprefix(".")
