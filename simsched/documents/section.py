"""The strict base class of everything that is read from a file, its reader, and the words for errors in a file."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from simsched.documents import yaml_lines
from simsched.documents.overrides import Draft
from simsched.documents.yaml_lines import Document, KeyPath
from simsched.errors import InputError, Problem, input_error, nearest

#: The message for each kind of error; `{given}` is what the user wrote, other names come from the error's context.
_SAID: Mapping[str, str] = MappingProxyType(
    {
        "missing": "is missing",
        "int_type": "must be a whole number, not {given}",
        "int_from_float": "must be a whole number, not {given}",
        "float_type": "must be a number, not {given}",
        "finite_number": "must be a finite number",
        "string_type": "must be text, not {given}",
        "string_too_short": "must not be empty",
        "string_too_long": "must have at most {max_length} characters",
        "string_pattern_mismatch": "{given} must consist of letters, digits, '.', '_' and '-', with no leading sign",
        "bool_type": "must be true or false, not {given}",
        "list_type": "must be a list, not {given}",
        "tuple_type": "must be a list, not {given}",
        "dict_type": "must be a mapping of keys to values, not {given}",
        "dataclass_type": "must be a mapping of keys to values, not {given}",
        "model_type": "must be a mapping of keys to values, not {given}",
        "model_attributes_type": "must be a mapping of keys to values, not {given}",
        "too_short": "must have at least {min_length} item",
        "greater_than_equal": "must be at least {ge:g}, not {given}",
        "greater_than": "must be more than {gt:g}, not {given}",
        "less_than_equal": "must be at most {le:g}, not {given}",
        "less_than": "must be less than {lt:g}, not {given}",
        "literal_error": "must be {expected}, not {given}",
        "value_error": "{error}",
    }
)


def problems_of(error: ValidationError, draft: Draft, model: type[BaseModel]) -> list[Problem]:
    """Convert pydantic's errors in a draft to problems with place and remedy, in the order of the file."""
    details = error.errors(include_url=False)
    found = [_problem(detail, draft, model) for detail in details if not _counts_faulty_items(detail)]
    return sorted(found, key=lambda problem: problem.line)


def _counts_faulty_items(detail: ErrorDetails) -> bool:
    """Return whether a list counts as too short only because of faulty items, which are reported separately."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail.get("ctx", {})["min_length"]


def say(detail: ErrorDetails) -> str:
    """Return the message for one error of pydantic."""
    template = _SAID.get(detail["type"])
    if template is None:
        return detail["msg"][:1].lower() + detail["msg"][1:]
    return template.format_map({**detail.get("ctx", {}), "given": given(detail["input"])})


def given(value: object) -> str:
    """Show what the user wrote, truncated if long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = str(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return f"'{text}'" if isinstance(value, str) else text


def _problem(detail: ErrorDetails, draft: Draft, model: type[BaseModel]) -> Problem:
    path: KeyPath = detail["loc"]
    if detail["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        known = keys_at(model, path[:-1])
        return draft.problem(path, "there is no such key", nearest(str(path[-1]), known))
    remedy = ""
    if detail["type"] == "literal_error" and isinstance(detail["input"], str):
        expected = detail.get("ctx", {}).get("expected", "")
        names = [part.strip("' ") for part in str(expected).replace(" or ", ",").split(",")]
        remedy = nearest(detail["input"], names)
        remedy = remedy if remedy.startswith("did") else ""
    return draft.problem(path, say(detail), remedy)


def keys_at(annotation: Any, path: KeyPath) -> Iterable[str]:
    """List the keys that the part of a value at `path` may have, by the value's type; names in mappings are skipped."""
    here = _model_in(annotation)
    for part in path:
        types = {} if here is None else _types_of(here)
        here = _model_in(types[str(part)]) if part in types else here
    return [] if here is None else list(_types_of(here))


def _types_of(model: type[Any]) -> Mapping[str, Any]:
    """List the keys of a section or of a dataclass of keys, with their types."""
    if issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    hints = typing.get_type_hints(model)
    return {field.name: hints[field.name] for field in dataclasses.fields(model)}


def _model_in(annotation: Any) -> type[Any] | None:
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)):
        return annotation
    inner = (_model_in(argument) for argument in typing.get_args(annotation))
    return next((model for model in inner if model is not None), None)


class Section(BaseModel):
    """A mapping in a file: no unknown keys, no silent conversions, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for conflict in self._conflicts():
            raise ValueError(conflict)
        return self

    def _conflicts(self) -> Iterator[str]:
        """Yield which of its values exclude each other; the first is reported."""
        return iter(())

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # also where it holds mappings


Kind = TypeVar("Kind", bound=Section)


def read_section(path: Path, kind: type[Kind]) -> Kind:
    """Read a YAML file of one section; raises `InputError` with every problem by line and key."""
    return section_of(yaml_lines.load(path), kind)


def section_of(given: Document | Mapping[str, Any], kind: type[Kind], where: str = "") -> Kind:
    """Build a section from a document, or from a mapping given in Python, `where` being its name for messages.

    Raises `InputError` with every problem by key, and in a document by line.
    """
    document = given if isinstance(given, Document) else Document(where, dict(given))
    try:
        return kind.model_validate_json(json.dumps(document.data))
    except ValidationError as error:
        raise InputError(*problems_of(error, Draft(document, document.data), kind)) from None
    except (TypeError, ValueError) as error:
        raise input_error(where, f"{document.data!r:.60} is not a value that YAML can hold", "give a dict") from error
