"""Gathers the pages of the documentation site, and writes its reference from the code.

    python docs/pages.py build/pages && mkdocs build --strict

The pages keep the places that they have in the repository, so that their links work in both.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simsched.api import simulate
from simsched.experiment import QUESTIONS, ExperimentSpec, PolicyCard, json_schema, policy_card, published_data
from simsched.policy import FileSignal, JobSignal, ViewSignal, registry, signals
from simsched.report.figures import FIGURES, occupancy, save
from simsched.results import metrics_markdown, schema_markdown

ROOT = Path(__file__).resolve().parent.parent
_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "policies/README.md", "traces/README.md",
          "experiments/README.md")  # fmt: skip
_DATA_SAID = """
None of this ships. `simsched data get NAME` fetches it from its owner into `data/NAME`, and keeps a file only if it is
the one, by its SHA-256, with which the validation was run. Without network it says what to download by hand and where
to put it; `simsched data check` then sets the folder against the hashes. Files *by hand* have no address of their own:
`simsched data list NAME` says where they come from, and where a hash is not known. The tests of a checkout look in the
folder that the variable `SIMSCHED_DATA` names, and skip what is not there.

A hash is of the content with Unix line ends and without a byte order mark.
"""
_EXIT_CODES = (
    (0, "all went well"),
    (1, "a run, a check or a comparison failed; what was finished is kept"),
    (2, "the input is wrong; every fault is named with its place and a remedy"),
    (130, "interrupted with Ctrl-C; what was finished is kept"),
    (141, "whoever read the output closed it"),
)


def gather(target: Path) -> None:
    """Write all pages of the site below `target`, which is emptied before."""
    shutil.rmtree(target, ignore_errors=True)
    for name in _PAGES:
        _copy(ROOT / name, target / name)
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in {".md", ".png", ".ipynb"}:
            _copy(path, target / path.relative_to(ROOT))
    for name, text in reference().items():
        page = target / "docs" / "reference" / f"{name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    _draw_policies(target / "docs" / "reference" / "policies")


def reference() -> dict[str, str]:
    """Return the pages of the reference by name."""
    return {
        "experiment": _experiment_page(),
        "metrics": f"# Metrics\n\n{metrics_markdown()}",
        "tables": f"# Tables and columns\n\n{schema_markdown()}",
        "signals": _signals_page(),
        "figures": _listed("Figures", ("figure", "shows"), [(f"`{name}`", said) for name, said in FIGURES.items()]),
        "data": _data_page(),
        "exit-codes": _listed("Exit codes", ("code", "means"), [(str(code), said) for code, said in _EXIT_CODES]),
        "python": _python_page(),
        **_policy_pages(),
    }


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _listed(title: str, headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return f"# {title}\n\n" + "\n".join(lines) + "\n"


def _experiment_page() -> str:
    schema = json_schema()
    rows = [tuple(row) for row in _keys(schema, schema, "")]
    head = _listed("Keys of an experiment", ("key", "type and range", "default", "meaning"), rows)
    return (
        head + f"\nA file needs `name` and `policies`; there are {len(ExperimentSpec.model_fields)} sections and keys."
    )


def _keys(schema: Mapping[str, Any], node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """List the keys of an object of the JSON Schema, those of its sections after it."""
    for name, found in node.get("properties", {}).items():
        said = _resolved(schema, found)
        default = "" if "default" not in found else f"`{found['default']}`"
        inner = said.get("properties")
        meaning = str(found.get("description") or said.get("description") or "")
        yield f"`{prefix}{name}`", _range(schema, found), "" if inner else default, " ".join(meaning.split())
        listed = _resolved(schema, said.get("items", {}))
        if inner:
            yield from _keys(schema, said, f"{prefix}{name}.")
        elif listed.get("properties") and prefix.count(".") < 2:
            yield from _keys(schema, listed, f"{prefix}{name}[].")


def _resolved(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference, also one that may be null."""
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


def _data_page() -> str:
    rows = []
    for data in published_data().values():
        files = f"{len(data.files)}" + (f" ({len(data.by_hand)} by hand)" if data.by_hand else "")
        needed_by = ", ".join(f"`{name}`" for name in data.needed_by)
        rows.append(
            (f"`{data.name}`", data.what, re.sub(r"(https://\S+)", r"<\1>", data.owner), data.licence, files, needed_by)
        )
    return _listed("Published data", ("name", "what", "owner", "licence", "files", "needed by"), rows) + _DATA_SAID


def _signals_page() -> str:
    rows = []
    for name, found in sorted(vars(signals).items()):
        if isinstance(found, JobSignal | ViewSignal | FileSignal):
            place = {JobSignal: f"job[{name}]", ViewSignal: f"view[{name}]"}.get(
                type(found), "a file or the policy's agents"
            )
            rows.append((f"`{name}`", f"`{place}`", found.tells, str(found.known)))
    return _listed("Signals", ("signal", "read as", "tells", "a real scheduler would have it"), rows)


def _python_page() -> str:
    import inspect

    import simsched.api as api

    parts = ["# Python\n\n`import simsched as sim` gives these names; the command line is a thin layer on them.\n"]
    for name in api.__all__:
        found = getattr(api, name)
        signature = "" if inspect.isclass(found) else str(inspect.signature(found))
        parts.append(f"## {name}\n\n```text\n{name}{signature}\n```\n\n{inspect.getdoc(found)}\n")
        if inspect.isclass(found):
            members = [(f"`{key}`", (inspect.getdoc(value) or "").split("\n")[0]) for key, value in vars(found).items()
                       if not key.startswith("_") and inspect.getdoc(value)]  # fmt: skip
            parts.append(_listed("", ("member", "what it is"), members).split("\n", 2)[2])
    return "\n".join(parts)


def _policy_pages() -> dict[str, str]:
    """Return a page for every policy, and the index by family and by question."""
    cards = [policy_card(name) for name in registry.names()]
    pages = {f"policies/{card.name}": _linked(card.markdown()) + _pictured(card.name) for card in cards}
    parts = ["# Policies\n\nOne page each, from its declarations. `simsched show policy NAME` prints it.\n"]
    for family in sorted({card.family for card in cards}):
        rows = [(_link(card), card.group, card.title) for card in cards if card.family == family]
        parts.append("#" + _listed(f" {family.capitalize()}"[1:], ("policy", "class", "what it does"), rows))
    parts.append("## By question\n")
    for question, answer in QUESTIONS.items():
        parts.append(f"**{question}:** {', '.join(_link(card) for card in cards if answer in card.answers)}.\n")
    return pages | {"policies": "\n".join(parts)}


def _link(card: PolicyCard) -> str:
    return f"[{card.name}](policies/{card.name}.md)"


def _linked(text: str) -> str:
    """Turn the names of pages into links, as seen from a policy's page."""
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
        found = simulate(jobs=jobs, policy=name, cluster={"nodes": 2, "gpus_per_node": 4, "gpu_type": "t4"})
        save(
            *occupancy({name: (found.jobs, found.allocations)}, (4, 4), title=f"What {name} does"),
            folder,
            name,
            ("png",),
        )


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
