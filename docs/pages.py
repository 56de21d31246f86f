"""Gathers the pages of the documentation site, and writes its reference from the code.

    python docs/pages.py build/pages && mkdocs build --strict

The pages keep their paths in the repository, so that links work in both.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simsched.api import simulate
from simsched.experiment import QUESTIONS, ExperimentSpec, PolicyCard, json_schema, policy_card
from simsched.experiment.published import published_data
from simsched.policy import registry, signals
from simsched.policy.signals import FileSignal, JobSignal, ViewSignal
from simsched.report.figures import FIGURES, occupancy, save

ROOT = Path(__file__).resolve().parent.parent
_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "policies/README.md", "traces/README.md",
          "experiments/README.md")  # fmt: skip
_DATA_SAID = """
simsched does not ship these data. In a checkout, `python docs/data.py get NAME` fetches them from their owner into
`data/NAME`, and keeps a file only if its SHA-256 is that of the file used in the validation. Without network it says
what to download by hand and where to put it; `python docs/data.py check` then compares the folder with the hashes.
Files *by hand* have no direct address: `python docs/data.py list NAME` names their source, and any unknown hash. The
tests of a checkout look in the folder given by the environment variable `SIMSCHED_DATA`, and skip missing data.

Hashes apply to the content with Unix line ends and without a byte order mark.
"""
_CITE_SAID = """
This is [CITATION.cff](../../CITATION.cff). Report the version that you ran (`simsched --version`; every manifest
records it with the hash of the code), the command of the run, which `report.html` repeats, and what each policy knows:
† and ‡ in tables.

Also cite the work that you used: the paper of every policy, given on [its page](policies.md); the owners of
data, some of whom require it in their licence; Qiao et al. (OSDI 2021) for the shipped applications and the
recipe `pollux`, and Jeon et al. (ATC 2019) for traces generated like Philly's.
"""
_EXIT_CODES = (
    (0, "success"),
    (1, "a run, a check or a comparison failed; finished cells are kept"),
    (2, "the input is invalid; every fault is named with its location and a remedy"),
    (130, "interrupted with Ctrl-C; finished cells are kept"),
    (141, "the reader of the output closed it"),
)


#: A section per public interface: title, package, introduction, and the modules shown (with True: all others).
_ROOMS = (
    (
        "Python",
        "simsched",
        "`import simsched as sim` gives these names and those of [Simulation](#simulation); the command line is a "
        "thin layer on them.",
        ("api.simulation", "engine.simulation", "engine.options"),
        True,
    ),
    (
        "Simulation",
        "simsched",
        "A simulation that its caller drives ([how](../how-to/drive-a-simulation.md)). Import from `simsched`.",
        ("api.simulation", "engine.simulation", "engine.options"),
    ),
    (
        "Contract of policies",
        "simsched.policy",
        "What a policy imports ([how to write one](../../policies/README.md)); see also its [signals](#signals). "
        "A policy never imports the engine.",
    ),
    ("Agents", "simsched.agent", "The agent of a job ([how to write one](../how-to/extend.md#write-an-agent))."),
    (
        "Goodput",
        "simsched.model",
        "Throughput times statistical efficiency, and the batch size that maximises it (Pollux, OSDI 2021).",
        (".goodput", ".throughput", ".batch", "model.application"),
    ),
    (
        "Results",
        "simsched.results",
        "Reading and comparing finished runs; [tables and metrics](../results.md) have a page.",
        (".reader", ".story", ".statistics", ".compare", ".by_group", ".metrics"),
    ),
)


def gather(target: Path) -> None:
    """Write all pages of the site below `target`, which is emptied before."""
    shutil.rmtree(target, ignore_errors=True)
    for name in _PAGES:
        _copy(ROOT / name, target / name)
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in {".md", ".png", ".ipynb", ".css"}:
            _copy(path, target / path.relative_to(ROOT))
    for name, text in reference().items():
        page = target / "docs" / "reference" / f"{name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    _draw_policies(target / "docs" / "reference" / "policies")


def reference() -> dict[str, str]:
    """Return the pages of the reference by name."""
    figures = _rows(("figure", "shows"), [(f"`{name}`", said) for name, said in FIGURES.items()])
    codes = _rows(("code", "means"), [(str(code), said) for code, said in _EXIT_CODES])
    return {
        "experiment": _experiment_page(),
        "command": f"# Figures and exit codes\n\n## Figures\n\n{figures}\n\n## Exit codes\n\n{codes}\n",
        "data": _data_page() + "\n" + _citation(),
        "python": "\n".join(["# Python\n", *(_room(title, *of) for title, *of in _ROOMS), _signals()]),
        **_policy_pages(),
    }


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _rows(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join(
        [
            *lines,
            *("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows),
        ]
    )


def _experiment_page() -> str:
    schema = json_schema()
    rows = [tuple(row) for row in _keys(schema, schema, "")]
    table = _rows(("key", "type and range", "default", "meaning"), rows)
    needed = f"A file needs `name` and `policies`; there are {len(ExperimentSpec.model_fields)} sections and keys."
    return f"# Keys of an experiment\n\n{table}\n\n{needed}\n"


def _keys(schema: Mapping[str, Any], node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the keys of an object of the JSON Schema, each section followed by its keys."""
    for name, found in node.get("properties", {}).items():
        said = _resolved(schema, found)
        default = "" if found.get("default", "") == "" else f"`{found['default']}`"
        inner = said.get("properties")
        meaning = str(found.get("description") or said.get("description") or "")
        yield f"`{prefix}{name}`", _range(schema, found), "" if inner else default, " ".join(meaning.split())
        listed = _resolved(schema, said.get("items", {}))
        if inner:
            yield from _keys(schema, said, f"{prefix}{name}.")
        elif listed.get("properties") and prefix.count(".") < 2:
            yield from _keys(schema, listed, f"{prefix}{name}[].")


def _resolved(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference, including an optional one."""
    for one in node.get("anyOf", ()):
        if "$ref" in one:
            return _resolved(schema, one)
    name = str(node.get("$ref", "")).rpartition("/")[2]
    return schema["$defs"][name] if name else node


def _range(schema: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    if "anyOf" in node:
        return " or ".join(_range(schema, one) for one in node["anyOf"] if one.get("type") != "null")
    said = _resolved(schema, node)
    if "enum" in said:
        return ", ".join(f"`{value}`" for value in said["enum"])
    if "const" in said:
        return f"`{said['const']}`"
    words = {
        "object": "section",
        "array": "list",
        "integer": "whole number",
        "string": "text",
        "boolean": "true or false",
    }
    bounds = (
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    )
    parts = [f"{text} {said[key]:g}" for key, text in bounds if key in said]
    return ", ".join([words.get(str(said.get("type")), str(said.get("type", "any"))), *parts])


def _citation() -> str:
    """Return CITATION.cff as BibTeX, with the other works to cite."""
    said = {
        key: value.strip('"')
        for key, value in re.findall(
            r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    year, month, _ = said["date-released"].split("-")
    entry = {
        "title": f"{{{said['title']}}}",
        "author": "{The simsched developers}",
        "year": year,
        "month": month,
        "version": f"{{{said['version']}}}",
        "license": f"{{{said['license']}}}",
    }
    lines = [f"  {key} = {value}," for key, value in entry.items()]
    return "\n".join(["## How to cite", "", "```bibtex", "@software{simsched,", *lines, "}", "```", _CITE_SAID])


def _data_page() -> str:
    parts = [f"# Published data\n{_DATA_SAID}"]
    for data in published_data().values():
        facts = {
            "Owner": re.sub(r"(https://\S+?)(?=\W?(?:\s|$))", r"<\1>", data.owner),
            "Licence": re.sub(r"(https://\S+?)(?=\W?(?:\s|$))", r"<\1>", data.licence),
            "Cite": data.cite,
            "Needed by": ", ".join(f"`{name}`" for name in data.needed_by),
            "Files": f"{len(data.files) - len(data.by_hand)} fetched, {len(data.by_hand)} by hand",
            "By hand": data.how,
        }
        listed = "\n".join(f"- {key}: {said}" for key, said in facts.items() if said)
        parts.append(f"## {data.name}\n\n{data.what[:1].upper()}{data.what[1:]}.\n\n{listed}\n")
    return "\n".join(parts)


def _signals() -> str:
    rows = []
    for name, found in sorted(vars(signals).items()):
        if isinstance(found, JobSignal | ViewSignal | FileSignal):
            place = {JobSignal: f"job[{name}]", ViewSignal: f"view[{name}]"}.get(
                type(found), "a file or the policy's agents"
            )
            rows.append((f"`{name}`", f"`{place}`", found.tells, str(found.known)))
    return f"## Signals\n\n{_rows(('signal', 'read as', 'tells', 'a real scheduler would have it'), rows)}\n"


def _room(title: str, package: str, said: str, modules: tuple[str, ...] = (), without: bool = False) -> str:
    """Return the section of a public interface, limited to modules with these endings (`without`: to all others)."""
    door = importlib.import_module(package)
    found = [getattr(door, name) for name in door.__all__ if not name.startswith("_")]
    shown = [one for one in found if inspect.isclass(one) or inspect.isfunction(one)]
    if modules:
        shown = [one for one in shown if one.__module__.endswith(modules) is not without]
    name = title.lower().split()[0]
    example = (ROOT / "docs" / "examples" / f"{name}.py").read_text(encoding="utf-8")
    parts = [f"## {title}\n\n{said}\n\n```python\n{example}```\n"]
    return "\n".join([*parts, *(_entry(one) for one in sorted(shown, key=lambda one: one.__name__))])


def _entry(found: Any) -> str:
    """Return the signature, docstring and members of a class or a function."""
    members = [
        _member(key, getattr(found, key))
        for key, value in vars(found).items()
        if inspect.isclass(found) and not key.startswith("_")
        if inspect.isfunction(value) or isinstance(value, property | classmethod)
    ]
    return "\n".join([f"### {found.__name__}", "```python", _signature(found), "```", _prose(found), "", *members, ""])


def _member(name: str, found: Any) -> str:
    shown = _signature(found, math.inf) if inspect.isroutine(found) else name
    return f"- `{shown}`: {' '.join(_prose(found).partition(chr(10) * 2)[0].split())}"


def _prose(found: Any) -> str:
    """Return a docstring with its examples as code blocks."""
    parts = (inspect.getdoc(found) or "").split("\n\n")
    return "\n\n".join(f"```python\n{part}\n```" if part.startswith(">>>") else part for part in parts)


def _signature(found: Any, width: float = 78) -> str:
    name = found.__name__
    if isinstance(found, type) and getattr(found, "_is_protocol", False):
        return f"class {name}(Protocol)"
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return name
    given = [one for one in signature.parameters.values() if one.name != "self"]
    plain = [re.sub(r"""(?<=: )(?:ForwardRef\()?(['"])(.+?)\1\)?(?= = |$)""", r"\2", str(one)) for one in given]
    kinds = [one.kind for one in given]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        plain.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    answer = (
        ""
        if inspect.isclass(found) or signature.return_annotation is inspect.Signature.empty
        else f" -> {str(signature.return_annotation).strip(chr(39))}"
    )
    line = f"{name}({', '.join(plain)}){answer}"
    return line if len(line) <= width else f"{name}(\n    " + ",\n    ".join(plain) + f",\n){answer}"


def _policy_pages() -> dict[str, str]:
    """Return a page for every policy, and the index by family and by question."""
    cards = [policy_card(name) for name in registry.names()]
    pages = {f"policies/{card.name}": _linked(card.markdown()) + _pictured(card.name) for card in cards}
    parts = ["# Policies\n\nOne page each, from its declarations. `simsched show policy NAME` prints it.\n"]
    for family in sorted({card.family for card in cards}):
        rows = [(_link(card), card.group, card.title) for card in cards if card.family == family]
        parts.append(f"## {family.capitalize()}\n\n{_rows(('policy', 'class', 'what it does'), rows)}\n")
    parts.append("## By question\n")
    for question, answer in QUESTIONS.items():
        parts.append(f"**{question}:** {', '.join(_link(card) for card in cards if answer in card.answers)}.\n")
    return pages | {"policies": "\n".join(parts)}


def _link(card: PolicyCard) -> str:
    return f"[{card.name}](policies/{card.name}.md)"


def _linked(text: str) -> str:
    """Turn names of pages into links relative to a policy's page."""
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](../../\1)", text)


def _pictured(name: str) -> str:
    words = f"{name} on 14 jobs of four applications, which two nodes of 4 GPUs cannot all run at once"
    return f"\n![{words}]({name}.png)\n"


def _draw_policies(folder: Path) -> None:
    """Draw what every policy does on one small workload."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = (("cifar10", 256, 1), ("bert", 24, 4), ("deepspeech2", 40, 2), ("yolov3", 16, 1))
    jobs = [
        {"submit_time_s": 300 * number, "application": kind, "batch_size": batch, "num_gpus": gpus}
        for number, (kind, batch, gpus) in enumerate(kinds[i % 4] for i in range(14))
    ]
    for name in registry.names():
        _draw(name, jobs, folder)


def _draw(name: str, jobs: list[dict[str, Any]], folder: Path) -> None:
    found = simulate(jobs=jobs, policy=name, cluster={"nodes": 2, "gpus_per_node": 4, "gpu_type": "t4"})
    drawn = occupancy({name: (found.jobs, found.allocations)}, (4, 4), title=f"What {name} does")
    save(*drawn, folder, name, ("png",))


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
