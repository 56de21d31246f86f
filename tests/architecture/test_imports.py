"""The arrows of import point one way, and heavy libraries stay behind their one importer."""

from __future__ import annotations

import ast
import graphlib
import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Which rooms each room may import, besides itself and the ground floor.
MAY_IMPORT = {
    "model": set(),
    "agent": {"model"},
    "policy": {"agent", "model"},
    "toolkit": {"policy", "agent", "model"},
    "engine": {"policy", "agent", "model", "results"},
    "workload": {"manifests", "model"},
    "documents": set(),
    "manifests": {"documents"},
    "applications": {"documents", "agent", "model"},
    "results": {"documents"},
    "bounds": set(),
    "report": {"results"},
    "experiment": {
        "engine", "policy", "agent", "model", "workload", "applications", "documents", "results",
    },
    "operators": {
        "experiment", "engine", "policy", "workload", "toolkit", "documents", "manifests", "results", "model",
        "applications",
        "bounds",
    },
    "testing": {"engine", "policy", "agent", "model"},
    "api": {
        "experiment", "engine", "policy", "agent", "model", "workload", "applications", "documents", "results",
        "report",
    },
    "gym": {"api", "engine", "toolkit", "policy", "model"},
    "cli": {
        "gym", "api", "operators", "experiment", "engine", "policy", "toolkit", "agent", "model", "workload",
        "applications", "documents", "manifests", "results", "report", "testing", "bounds",
    },
    "simsched_policies": {"toolkit", "policy", "agent", "manifests", "model"},
}  # fmt: skip
#: Of results the engine knows the rows that it fills, and nothing that reads or writes them.
ROWS = ROOT / "simsched" / "results" / "rows.py"
#: The files of the ground floor, which everybody may import and which import only each other.
GROUND = {
    "arithmetic", "artifacts", "errors", "files", "jit", "kernels", "keys", "knowledge", "outlets", "paths",
        "plugins", "reading",
    "sources", "stops", "threads", "version", "words",
}  # fmt: skip

#: What `import simsched` loads: it offers what `simsched.api` has, and nothing in the house imports it.
FACADE = ROOT / "simsched" / "__init__.py"

#: Heavy or special libraries and the only rooms, or rooms in rooms, that may import them.
ONLY_IMPORTER = {
    "pydantic": {"documents", "applications", "experiment", "results", "../policies/simsched_policies/external"},
    "pydantic_core": {"documents", "results"},
    "yaml": {"documents", "applications"},
    "pyarrow": {"results"},
    "simpy": {"engine"},
    "matplotlib": {"report/figures"},
    "optuna": {"experiment"},
    "gymnasium": {"gym"},
    "click": {"cli"},
    "rich": {"api", "cli"},
}

#: No room but the policies may hold more than this share of all lines.
MOST_OF_THE_HOUSE = 0.15


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / "simsched").rglob("*.py")):
        if path == FACADE:
            continue
        part = path.relative_to(ROOT / "simsched").parts[0]
        yield part.removesuffix(".py"), path
    for path in sorted((ROOT / "policies" / "simsched_policies").rglob("*.py")):
        yield "simsched_policies", path


@cache
def imported(path: Path) -> tuple[str, ...]:
    """List what a module imports, inside functions too, as full dotted names."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    package = path.relative_to(ROOT / "policies" if "policies" in path.parts else ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (base, node.module or "") if part)
            yield from (f"{name}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("part", sorted({part for part, _ in modules()}))
def test_imports_point_down(part: str) -> None:
    within = [path for room, path in modules() if room == part]
    for path, name in ((one, name) for one in within for name in imported(one)):
        first, *rest = name.split(".")
        assert name != "simsched", f"{path}: import the module that is meant, not the whole package"
        if first == "simsched_policies":
            assert part == "simsched_policies", f"{path} imports a policy; policies are found through the registry"
        if first == "simsched" and rest:
            target = rest[0]
            below = set() if part in GROUND else MAY_IMPORT[part] | {part}
            assert target in GROUND | below, f"{path}: {part} must not import {name}"
            outside = target not in GROUND | {part}
            assert not outside or is_offered(name), f"{path}: {name} is not offered at the door of its room"
        if part == "engine" and name.startswith("simsched.results."):
            assert module_path(name) == ROWS, f"{path}: of results the engine may import rows alone, not {name}"
        if first in ONLY_IMPORTER:
            allowed = any((ROOT / "simsched" / room).resolve() in path.parents for room in ONLY_IMPORTER[first])
            assert allowed, f"{path}: only {sorted(ONLY_IMPORTER[first])} may import {first}"


def is_offered(name: str) -> bool:
    """Return whether a name, or the module that it is in, is offered by the package before it: the way into a room."""
    *package, offered = name.split(".")
    *room, module = package
    return offered in offers(ROOT.joinpath(*package)) or offers(ROOT.joinpath(*room)).get(module) == ""


@cache
def offers(folder: Path) -> dict[str, str]:
    """Return the module, in its package, of each name that the stub of a folder offers; "" where it has none."""
    stub = folder / "__init__.pyi"
    body = ast.parse(stub.read_text(encoding="utf-8")).body if stub.is_file() else []
    named = {alias.name: one.module or "" for one in body if isinstance(one, ast.ImportFrom) for alias in one.names}
    declared = [one.target.id for one in body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    return named | dict.fromkeys(declared, "")


def test_what_a_door_offers_is_there() -> None:
    for stub in sorted((ROOT / "simsched").rglob("__init__.pyi")):
        if stub.parent.name == "gym" and importlib.util.find_spec("gymnasium") is None:
            continue  # an extra, which is not installed
        package = importlib.import_module(".".join(stub.parent.relative_to(ROOT).parts))
        for name in getattr(package, "__all__", ()):
            assert getattr(package, name) is not None


def test_every_room_of_the_house_is_known() -> None:
    rooms = {path.name for path in (ROOT / "simsched").iterdir() if (path / "__init__.py").is_file()}
    assert rooms == MAY_IMPORT.keys() - {"simsched_policies"}
    files = {path.stem for path in (ROOT / "simsched").glob("*.py")}
    assert files == GROUND | {FACADE.stem}


def test_the_rooms_that_may_be_imported_form_no_circle() -> None:
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()


def test_no_modules_import_each_other_in_a_circle() -> None:
    arrows: dict[Path, set[Path]] = {}
    for _, path in modules():
        targets = {module_path(name) for name in imported(path) if name.startswith("simsched")}
        arrows[path] = targets - {path}
    graphlib.TopologicalSorter(arrows).prepare()


def module_path(name: str) -> Path:
    """Find the file of an imported name, which may be a module or something in one."""
    parts = name.split(".")
    place = ROOT.joinpath("policies", *parts) if parts[0] == "simsched_policies" else ROOT.joinpath(*parts)
    if place.with_suffix(".py").is_file():
        return place.with_suffix(".py")
    if place.is_dir():
        return place / "__init__.py"
    module = offers(place.parent).get(parts[-1])
    return module_path(".".join([*parts[:-1], *([module] if module else [])]))


def test_every_room_says_in_one_sentence_what_it_is_for() -> None:
    for path in [*(ROOT / "simsched").rglob("__init__.py"), *(ROOT / "policies").rglob("__init__.py")]:
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert said, f"{path} says nothing"
        assert said.split("\n\n")[0].rstrip().endswith("."), f"{path} does not begin with a sentence"


DOORS = sorted([*(ROOT / "simsched").rglob("__init__.pyi"), *(ROOT / "policies").rglob("__init__.pyi")])


@pytest.mark.parametrize("door", DOORS, ids=lambda door: "/".join(door.parent.relative_to(ROOT).parts[1:]))
def test_a_door_offers_at_most_forty_names(door: Path) -> None:
    assert len(offers(door.parent)) <= 40


@pytest.mark.parametrize("door", DOORS, ids=lambda door: "/".join(door.parent.relative_to(ROOT).parts[1:]))
def test_what_a_door_offers_says_what_it_does_and_that_it_refuses(door: Path) -> None:
    for name, module in offers(door.parent).items():
        for place, one in said_of(door.parent.joinpath(*module.split(".")).with_suffix(".py"), name):
            said = ast.get_docstring(one) or ""
            assert said, f"{place} says nothing"
            refuses = isinstance(one, ast.FunctionDef) and any(isinstance(part, ast.Raise) for part in ast.walk(one))
            assert not refuses or re.search("[Rr]aise|[Rr]efuse|Error", said), f"{place} does not say that it refuses"


def said_of(path: Path, name: str) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef]]:
    """Yield a public function, or a class and its public methods, the stubs of overloaded ones left out."""
    within = parsed(path).body if path.is_file() else []
    for one in (one for one in within if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == name):
        public = one.body if isinstance(one, ast.ClassDef) else []
        methods = [part for part in public if isinstance(part, ast.FunctionDef) and not part.name.startswith("_")]
        for part in [one, *methods]:
            if "overload" not in [ast.unparse(decorator) for decorator in part.decorator_list]:
                yield f"{path}:{part.lineno}: {part.name}", part


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_no_room_holds_too_much_of_the_house() -> None:
    lines: dict[str, int] = {}
    for part, path in modules():
        lines[part] = lines.get(part, 0) + len(path.read_text(encoding="utf-8").splitlines())
    total = sum(lines.values())
    for room, count in lines.items():
        share = count / total
        assert room == "simsched_policies" or share <= MOST_OF_THE_HOUSE, f"{room} holds {share:.1%} of the lines"


#: The rooms that read users' files, and the modules of these that read only what ships with simsched.
READERS = ("agent", "applications", "documents", "operators", "workload")
SHIPPED_ONLY = {"philly_statistics.py", "sia.py", "catalogue.py"}


def test_users_files_are_read_through_one_door():
    opens = re.compile(
        r"\bopen\(|\.read_text\(|\.read_bytes\(|\bjson\.loads?\(|\bcsv\.(reader|DictReader)\(\w*(file|stream|path)"
    )
    found = {
        path.name
        for room in READERS
        for path in (ROOT / "simsched" / room).rglob("*.py")
        if opens.search(path.read_text(encoding="utf-8"))
    }
    assert found <= SHIPPED_ONLY | {"sheet.py"}  # which parses what the door gives it


@pytest.mark.parametrize(
    ("call", "only"),
    [
        (r"\.savefig\(", {"report/figures/lettering.py"}),
        (r"\.print_(svg|png|pdf|figure)\(", {"report/figures/lettering.py"}),
        (r"\bhtml import escape|\bhtml\.escape\(", {"outlets.py"}),
    ],
)
def test_names_leave_by_the_one_door_of_each_outlet(call, only):
    package = ROOT / "simsched"
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py")
             if re.search(call, path.read_text(encoding="utf-8"))}  # fmt: skip
    assert found == only
