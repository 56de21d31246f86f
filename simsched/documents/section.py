"""The strict base class of everything that is read from a file, and its reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from simsched.documents import yaml_lines
from simsched.documents.overrides import Draft
from simsched.documents.validation_messages import problems_of
from simsched.documents.yaml_lines import Document
from simsched.errors import InputError, input_error


class Section(BaseModel):
    """A mapping in a file: no unknown keys, no silent conversions, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


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
