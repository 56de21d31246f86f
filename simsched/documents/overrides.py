"""An experiment's file before it is checked: its plain data, overrides by dotted keys, and the origin of each value."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from simsched.documents.yaml_lines import Document, KeyPath, parse_value
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.files import absolute, is_special

#: Keys whose values are paths: relative to their file, or to the current folder on the command line.
_PATH_KEYS: tuple[tuple[str, ...], ...] = (
    ("workload", "path"), ("workload", "source"), ("applications", "path"), ("report", "curves"),
    ("failures", "outages_path"), ("engine", "sharing", "pairs_path"),
    ("cluster", "groups", "*", "available"), ("cluster", "groups", "*", "price_per_h"),
    ("cluster", "groups", "*", "price_per_h", "spot"), ("cluster", "groups", "*", "price_per_h", "on_demand"),
)  # fmt: skip
#: Of these, keys whose values may also be names, which are kept unless such a file exists.
_NAMES_OR_PATHS = (("workload", "source"),)
#: Lists of plugins: what each is called, and the key that names it.
_PLUGINS = MappingProxyType({"policies": ("policy", "name"), "processes": ("process", "use")})


@dataclass
class Draft:
    """The data of an experiment and the origin of its values.

    `origins` holds what was set outside the file: `-o key=value` options and points of a sweep.
    """

    document: Document
    data: dict[str, Any]
    origins: dict[KeyPath, str] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Document) -> Draft:
        """Start with the content of the file; its relative paths are resolved against its folder."""
        draft = cls(document, copy.deepcopy(document.data))
        draft._write_out_plugins()
        for path in _PATH_KEYS:
            draft._resolve_path(path, Path(document.file).parent)
        return draft

    def copy(self) -> Draft:
        """Return a draft that can be changed independently; the values of its sweep are shared."""
        data = {key: value if key == "sweep" else copy.deepcopy(value) for key, value in self.data.items()}
        return Draft(self.document, data, dict(self.origins))

    def forget_jobs_of_another_recipe(self) -> None:
        """Drop the number of jobs in the file if an option names another recipe; a replay takes the whole trace."""
        workload = self.data.get("workload")
        before = self.document.data.get("workload")
        if not isinstance(workload, dict) or not isinstance(before, dict) or ("workload", "recipe") not in self.origins:
            return
        if before.get("recipe") != workload.get("recipe") and ("workload", "jobs") not in self.origins:
            workload.pop("jobs", None)

    def refuse_special_files(self) -> None:
        """Raise `InputError` if a path names a device, a pipe or a socket, whose content might never end."""
        problems = []
        for path in _PATH_KEYS:
            for section in self._sections(path):
                value = section.get(path[-1])
                if isinstance(value, str) and is_special(Path(value)):
                    problems.append(self.problem(path, f"'{value}' is neither a file nor a folder"))
        if problems:
            raise InputError(*problems)

    def problem(self, path: KeyPath, message: str, remedy: str = "") -> Problem:
        """Return a problem at a key, naming the option or the line that set it."""
        said = f"{self.name(path)}: {message}" if path else message
        origin = self._origin(path)
        if origin:
            return Problem(origin, said, remedy)
        return Problem(self.document.file, said, remedy, self.document.line(path))

    def _origin(self, path: KeyPath) -> str:
        """Find what set a key outside the file: the key itself, an enclosing one, or a new one inside it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        if not path or path in self.document.lines:
            return ""
        return next((origin for known, origin in self.origins.items() if known[: len(path)] == path), "")

    def name(self, path: KeyPath) -> str:
        """Format a key as the user would, with policies by their label or name."""
        parts = [str(part) for part in path]
        if len(path) > 1 and path[0] == "policies" and isinstance(path[1], int):
            parts[1] = self._policy_name(path[1])
        return ".".join(parts)

    def _policy_name(self, index: int) -> str:
        policies = self.data.get("policies")
        entry = policies[index] if isinstance(policies, list) and index < len(policies) else None
        if not isinstance(entry, dict):
            return str(index)
        return str(entry.get("label") or entry.get("name") or index)

    def set(self, dotted: str, value: Any, origin: str) -> None:
        """Set the value of a dotted key, `policies.NAME` meaning all of that label or name, `policies.*` all.

        Raises `InputError` if the path to the key does not exist.
        """
        for path in self._find(dotted, origin):
            self._set_one(path, value, origin)
        self._write_out_plugins()

    def _write_out_plugins(self) -> None:
        """Expand policies and processes given by a plain name to sections."""
        for section, (_, key) in _PLUGINS.items():
            listed = self.data.get(section)
            if isinstance(listed, list):
                self.data[section] = [{key: one} if isinstance(one, str) else one for one in listed]

    def override(self, option: str) -> None:
        """Apply `key=value`, the value in YAML; raises `InputError` naming the option."""
        origin = f"-o {option}"
        label = next((one for one in self._policy_prefixes() if option.startswith(one)), "")  # may contain a '='
        key, equals, text = option[len(label) :].partition("=")
        key = (label + key).strip()
        if not equals or not key:
            raise input_error(origin, "write an override as key=value, for instance 'workload.jobs=20'")
        self.set(key, parse_value(text, origin), origin)
        for path in _PATH_KEYS:
            if ".".join(map(str, path)).startswith(key):
                self._resolve_path(path, Path.cwd())

    def _policy_prefixes(self) -> list[str]:
        policies = self.data.get("policies")
        entries = [entry for entry in policies if isinstance(entry, dict)] if isinstance(policies, list) else []
        return [f"policies.{entry['label']}." for entry in entries if isinstance(entry.get("label"), str)]

    def _resolve_path(self, path: tuple[str, ...], folder: Path) -> None:
        key = path[-1]
        for section in self._sections(path):
            if isinstance(section.get(key), str) and section[key]:
                place = absolute(section[key], folder)
                if path not in _NAMES_OR_PATHS or place.exists():
                    section[key] = str(place)

    def _sections(self, path: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return the sections that may hold the last key of a path, whose `*` is any place of a list."""
        found: list[Any] = [self.data]
        for part in path[:-1]:
            inner = [one.get(part) for one in found if isinstance(one, dict)] if part != "*" else found
            found = [item for one in inner if isinstance(one, list) for item in one] if part == "*" else inner
        return [one for one in found if isinstance(one, dict)]

    def resolve_file(self, path: KeyPath) -> None:
        """Make the path at a key such as `workload.path` absolute."""
        section: Any = self.data
        for part in path[:-1]:
            section = section[part]
        section[path[-1]] = str(absolute(section[path[-1]], self.folder_of(path)))

    def folder_of(self, path: KeyPath) -> Path:
        """Return the folder from which a relative path at a key counts: the file's, or the current one for `-o`."""
        given = any(path[: len(known)] == known and text.startswith("-o ") for known, text in self.origins.items())
        return Path.cwd() if given else Path(self.document.file).parent

    def _set_one(self, path: KeyPath, value: Any, origin: str) -> None:
        target: Any = self.data
        for here, part in enumerate(path[:-1]):
            target = target.setdefault(part, {}) if isinstance(target, dict) else target[part]
            if target is None or not isinstance(target, dict | list):
                raise input_error(origin, f"'{self.name(path[: here + 1])}' has no keys")
        target[path[-1]] = copy.deepcopy(value)
        self.origins = {known: text for known, text in self.origins.items() if known[: len(path)] != path}
        self.origins[path] = origin

    def _find(self, dotted: str, origin: str) -> list[KeyPath]:
        head, _, rest = dotted.partition(".")
        if head == "sweep" and rest:
            return [("sweep", rest)]
        if head in _PLUGINS and rest:
            return self._find_plugins(head, rest, origin)
        path = tuple(dotted.split("."))
        if not all(path):
            raise input_error(origin, f"'{dotted}' is not a key", "write the keys with single dots between them")
        return [self._with_indices(path, origin)]

    def _with_indices(self, path: Sequence[str], origin: str) -> KeyPath:
        """Convert the parts of a path that select items of lists to indices."""
        target: Any = self.data
        found: list[str | int] = []
        for part in path:
            if isinstance(target, list):
                if not part.isdigit() or int(part) >= len(target):
                    name = ".".join(str(step) for step in found)
                    raise input_error(origin, f"'{name}' has no item '{part}'", f"it has {len(target)}, counted from 0")
                found.append(int(part))
                target = target[int(part)]
            else:
                found.append(part)
                target = target.get(part) if isinstance(target, dict) else None
        return tuple(found)

    def _find_plugins(self, section: str, rest: str, origin: str) -> list[KeyPath]:
        listed, (noun, key) = self.data.get(section), _PLUGINS[section]
        entries = listed if isinstance(listed, list) else []
        known: dict[str, list[int]] = {"*": list(range(len(entries)))} if entries else {}
        for index, entry in enumerate(entries):
            names = [entry.get("label"), entry.get(key)] if isinstance(entry, dict) else []
            for name in dict.fromkeys([*names, str(index)]):
                if isinstance(name, str):
                    known.setdefault(name, []).append(index)
        for name in sorted(known, key=len, reverse=True):
            if rest.startswith(name + "."):
                tail = rest[len(name) + 1 :]
                return [self._with_indices((section, str(index), *tail.split(".")), origin) for index in known[name]]
        wanted = rest.split(".")[0]
        real = [name for name in known if name != "*" and not name.isdigit()]
        raise input_error(origin, f"no {noun} of this experiment is called '{wanted}'", nearest(wanted, real))


def draft_of(document: Document, overrides: Sequence[str] = ()) -> Draft:
    """Start an experiment from a file and `key=value` overrides; raises `InputError` with all bad overrides."""
    draft = Draft.of(document)
    problems: list[Problem] = []
    for option in overrides:
        try:
            draft.override(option)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    draft.forget_jobs_of_another_recipe()
    return draft
