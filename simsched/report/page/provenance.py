"""The provenance of a run: versions, data, and what each policy was told, from the manifests of its cells."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from simsched.outlets import html_text, json_text
from simsched.results import Cell, Run, row_name

_SHORT_HASH = 12


def provenance(run: Run) -> str:
    """Write the manifests of a run as a collapsed part of a page."""
    facts = [(name, text) for name, text in _facts(run.cells) if text]
    listed = "\n".join(f"<dt>{html_text(name)}</dt><dd>{html_text(text)}</dd>" for name, text in facts)
    return f"""<details class="manifest">
<summary>Manifest: versions, seeds, data and what each policy was told</summary>
<dl>
{listed}
</dl>
{_policies(run)}
{_cells(run)}
</details>"""


def experiment_text(run: Run) -> str:
    """Write the resolved specification of a run as a collapsed part of a page, for the screen only."""
    text = json_text(run.experiment, indent=2, sort_keys=True, default=str)
    return f"""<details class="resolved">
<summary>Resolved specification, every default written out</summary>
<pre><code>{html_text(text)}</code></pre>
</details>"""


def _facts(cells: Iterable[Cell]) -> list[tuple[str, str]]:
    manifests = [cell.manifest for cell in cells]
    environments = [_mapping(manifest, "environment") for manifest in manifests]
    seeds = sorted({cell.seed for cell in cells})
    return [
        ("simsched", _distinct(environment.get("simsched") for environment in environments)),
        ("git commit", _distinct(_commit(environment.get("git_commit")) for environment in environments)),
        ("engine semantics", _distinct(manifest.get("engine_semantics") for manifest in manifests)),
        ("schema of the tables", _distinct(manifest.get("results_schema") for manifest in manifests)),
        ("Python", _distinct(environment.get("python") for environment in environments)),
        ("packages", _distinct(_pairs(_mapping(environment, "packages")) for environment in environments)),
        ("platform", _distinct(environment.get("platform") for environment in environments)),
        ("seeds", ", ".join(map(str, seeds))),
        ("cluster", _distinct(_cluster(manifest.get("cluster")) for manifest in manifests)),
        ("engine", _distinct(_pairs(_mapping(manifest, "engine")) for manifest in manifests)),
        ("hash of the code", _distinct(manifest.get("code_hash") for manifest in manifests)),
        ("hash of the applications", _distinct(manifest.get("applications_hash") for manifest in manifests)),
    ]


def _mapping(manifest: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = manifest.get(key)
    return value if isinstance(value, Mapping) else {}


def _distinct(values: Iterable[object]) -> str:
    """Write the common values of the cells, or all values if they differ."""
    return "; ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))


def _commit(commit: object) -> str:
    text = str(commit or "")
    return f"{text[:-1]}, with changes" if text.endswith("+") else text


def _pairs(mapping: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {_value(value)}" for key, value in sorted(mapping.items()))


def _value(value: object) -> str:
    return value if isinstance(value, str) else json_text(value, default=str)


def _cluster(groups: object) -> str:
    if not isinstance(groups, list):
        return ""
    known = [group for group in groups if isinstance(group, Mapping)]
    return " + ".join(
        f"{group.get('nodes')} nodes of {group.get('gpus_per_node')} GPUs ({group.get('gpu_type')})" for group in known
    )


def _policies(run: Run) -> str:
    headers = ("policy", "code", "parameters", "told about", "agents beside its jobs", "hash of its source")
    first = {cell.policy: cell.manifest for cell in reversed(run.cells)}
    rows = []
    for label in run.policies:
        manifest = first[label]
        policy = _mapping(manifest, "policy")
        told = [f"{signal} ({known})" for signal, known in sorted(_mapping(manifest, "policy_knows").items())]
        rows.append(
            (
                label,
                str(policy.get("class", policy.get("name", ""))),
                _pairs(_mapping(policy, "params")),
                ", ".join(told) if told else "no signal beyond the jobs' requests",
                _agents(_mapping(manifest, "agents")),
                _source(manifest.get("policy_source", "")),
            )
        )
    return _table("Policies, and what each was told", headers, rows)


def _source(source: object) -> str:
    """Shorten the hash of a policy's source; for several files, hash their hashes."""
    if isinstance(source, Mapping):
        source = sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()
    return str(source)[:_SHORT_HASH]


def _agents(agents: Mapping[str, Any]) -> str:
    kinds: dict[str, list[str]] = {}
    for application, kind in agents.items():
        kinds.setdefault(str(kind), []).append(application)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in sorted(kinds.items()))


def _cells(run: Run) -> str:
    headers = ("cell", "seed", "jobs", "workload", "hash of its jobs", "folder")
    rows = [
        (
            row_name(cell.policy, cell.point),
            str(cell.seed),
            str(cell.manifest.get("jobs", "")),
            cell.workload_name,
            str(cell.manifest.get("jobs_hash", ""))[:_SHORT_HASH],
            cell.folder.name,
        )
        for cell in run.cells
    ]
    return _table("Cells", headers, rows)


def _table(title: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{html_text(header)}</th>' for header in headers)
    body = "\n".join(
        f'<tr><th scope="row">{html_text(row[0])}</th>'
        + "".join(f"<td>{html_text(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"""<div class="scroll" tabindex="0" role="region" aria-label="{html_text(title)}"><table class="texts">
<caption>{html_text(title)}</caption>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table></div>"""
