"""The arrows of import point one way, and heavy libraries stay behind their one importer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Which parts of the house each part may import, besides itself and the ground floor (errors, paths, the version).
MAY_IMPORT = {
    "model": set(),
    "agent": {"model"},
    "policy": {"agent", "model"},
    "engine": {"policy", "agent", "model"},
    "workload": {"model"},
    "results": set(),
    "report": {"results"},
    "experiment": {"engine", "policy", "agent", "model", "workload", "results", "report", "testing"},
    "testing": {"engine", "policy", "agent", "model"},
    "cli": {"experiment", "engine", "policy", "agent", "model", "workload", "results", "report", "testing"},
    "simsched_policies": {"policy", "agent", "model"},
}
GROUND = {"errors", "jit", "paths", "threads", "__init__"}

ONLY_IMPORTER = {
    "simpy": {"engine"},
    "pydantic": {"experiment"},
    "yaml": {"experiment"},
    "pyarrow": {"results"},
    "matplotlib": {"report"},
    "click": {"cli"},
    "rich": {"cli"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / "simsched").rglob("*.py")):
        part = path.relative_to(ROOT / "simsched").parts[0]
        yield part.removesuffix(".py"), path
    for path in sorted((ROOT / "policies" / "simsched_policies").rglob("*.py")):
        yield "simsched_policies", path


def imported(path: Path) -> Iterator[str]:
    """List what a module imports, inside functions too, as full dotted names."""
    package = path.relative_to(ROOT / "policies" if "policies" in path.parts else ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (base, node.module or "") if part)
            yield from (f"{name}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("part", "path"), list(modules()), ids=lambda value: getattr(value, "stem", value))
def test_imports_point_down(part: str, path: Path) -> None:
    for name in imported(path):
        first, *rest = name.split(".")
        if first == "simsched_policies":
            assert part == "simsched_policies", f"{path} imports a policy; policies are found through the registry"
        if first == "simsched" and rest:
            target = rest[0]
            allowed = target in GROUND or part in GROUND or target == part or target == "__version__"
            assert allowed or target in MAY_IMPORT[part], f"{path}: {part} must not import {name}"
        if first in ONLY_IMPORTER:
            assert part in ONLY_IMPORTER[first], f"{path}: only {sorted(ONLY_IMPORTER[first])} may import {first}"


def test_every_part_of_the_house_is_known() -> None:
    parts = {path.name for path in (ROOT / "simsched").iterdir() if (path / "__init__.py").is_file()}
    assert parts <= MAY_IMPORT.keys()
