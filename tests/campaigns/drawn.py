"""Draws values and whole experiments from the schema of experiments, most of them valid, some odd."""

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from simsched.agent import AGENTS
from simsched.experiment import json_schema
from simsched.plugins import parameters
from simsched.policy import POLICIES
from simsched.results import METRICS
from tests.campaigns.command import TRACE

TYPES = ("t4", "v100", "p100", "k80", "a100", "rtx", "quad")
APPLICATIONS = ("cifar10", "ncf", "bert", "imagenet", "deepspeech2", "yolov3")
#: Files next to an experiment, by name.
FILES: Mapping[str, str] = {
    "jobs.csv": TRACE,
    "tenants.csv": "submit_time,num_gpus,duration,tenant,status\n"
    + "".join(f"{20 * i},{1 + i % 4},{60 + 31 * i},{'ab'[i % 2]},{('Pass', 'Failed')[i % 2]}\n" for i in range(12)),
    "list.csv": "time,name,application,num_replicas,batch_size\n"
    + "".join(f"{60 * i},j{i},{APPLICATIONS[i % 3]},{1 + i % 2},{(512, 2048, 48)[i % 3]}\n" for i in range(6)),
    "outages.csv": "node,down,up\n0,100,400\n1,300,350\n",
    "curves.csv": "figure,panel,series,x,y\njct-cdf,,fifo,1,0.5\n",
    "pairs.csv": "first,second,first_speed,second_speed\ncifar10,ncf,0.8,0.9\n",
    "empty.csv": "",
}
#: Values of keys that hold names, in addition to the schema.
_KNOWN: Mapping[str, tuple[Any, ...]] = {
    "path": ("jobs.csv", "tenants.csv", "list.csv", "empty.csv", "missing.csv", "."),
    "source": ("philly-synthetic", "jobs.csv", "tenants.csv"),
    "format": ("auto", "plain", "slurm", "helios"),
    "gpu_type": TYPES,
    "reference_type": TYPES,
    "application": APPLICATIONS,
    "outages_path": ("outages.csv", "jobs.csv"),
    "curves": ("curves.csv", "jobs.csv"),
    "pairs_path": ("pairs.csv", "jobs.csv"),
    "level": ("rack", "island"),
    "rack_level": ("rack", "island"),
    "reference": ("fifo", "tiresias", "nobody"),
    "label": ("a", "b", "first", "=1+1", "日本", "$x_$"),
    "parent": ("", "a", "b"),
    "batch_size": (0, 64, 512),
    "diagnostics": ("gap", "nothing"),
    "name": ("fuzz",),
}
#: Values in unexpected places.
ODD: tuple[Any, ...] = (
    None, True, "", "x", -1, 0, 0.5, 1e-300, 1e300, 10**19, 2.0, [], {}, [1, 1], {"a": {"b": [None]}}, "\u0007",
    "../..", "=1+1", "/dev/null", float("inf"), float("-inf"), float("nan"), "1e5", "null", [[[]]], "\u202e", "é" * 300,
)  # fmt: skip
_MOST_DRAWN = 12


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """Return the schema of experiments."""
    return json_schema()


@lru_cache(maxsize=1)
def policies() -> tuple[str, ...]:
    """Return the names of all shipped policies."""
    return POLICIES.names()


def value(
    chance: random.Random, spec: Mapping[str, Any], defs: Mapping[str, Any], key: str = "", depth: int = 0
) -> Any:
    """Draw a value that a JSON schema allows; `key` selects meaningful names."""
    if "$ref" in spec:
        return value(chance, defs[spec["$ref"].rsplit("/", 1)[1]], defs, key, depth)
    if "anyOf" in spec:
        return value(chance, chance.choice(spec["anyOf"]), defs, key, depth)
    if "const" in spec:
        return spec["const"]
    if "enum" in spec:
        return chance.choice(spec["enum"])
    kind = spec.get("type")
    if kind == "object":
        return _mapping(chance, spec, defs, key, depth)
    if kind == "array":
        return _list(chance, spec, defs, key, depth)
    if kind in ("integer", "number"):
        return _number(chance, spec, whole=kind == "integer")
    if kind == "boolean":
        return chance.random() < 0.5
    if kind == "string":
        return chance.choice(_KNOWN.get(key, ("x", "a")))
    return None if kind == "null" else chance.choice(ODD)


def _mapping(chance: random.Random, spec: Mapping[str, Any], defs: Mapping[str, Any], key: str, depth: int) -> Any:
    made = {}
    for name, inner in spec.get("properties", {}).items():
        if name in spec.get("required", ()) or chance.random() < (0.25 if depth < 3 else 0):
            made[name] = value(chance, inner, defs, name, depth + 1)
    others = spec.get("additionalProperties")
    if isinstance(others, dict):
        names = (*TYPES, "a", "b") if key not in ("tenants", "follow", "published") else ("a", "b", "fifo", "cifar10")
        for name in chance.sample(names, chance.randint(0, 2)):
            made[name] = value(chance, others, defs, "", depth + 1)
    return made


def _list(chance: random.Random, spec: Mapping[str, Any], defs: Mapping[str, Any], key: str, depth: int) -> list[Any]:
    if "prefixItems" in spec:
        return [value(chance, item, defs, key, depth + 1) for item in spec["prefixItems"]]
    count = chance.randint(spec.get("minItems", 0), min(spec.get("maxItems", 3), spec.get("minItems", 0) + 2))
    return [value(chance, spec.get("items", {}), defs, key, depth + 1) for _ in range(count)]


def _number(chance: random.Random, spec: Mapping[str, Any], *, whole: bool) -> Any:
    low = spec.get("minimum", spec.get("exclusiveMinimum", 0))
    high = min(spec.get("maximum", spec.get("exclusiveMaximum", low + _MOST_DRAWN)), low + _MOST_DRAWN)
    if chance.random() < 0.06:
        return chance.choice([low, high, spec.get("maximum", high), low - 1])
    if whole or chance.random() < 0.5:
        return chance.randint(int(low) + (low == spec.get("exclusiveMinimum")), max(int(high), int(low) + 1))
    return low + (high - low) * chance.random()


def params(chance: random.Random, kind: Any, name: str) -> dict[str, Any]:
    """Draw parameters of a policy or agent from the annotations of its constructor."""
    made = {}
    for one in parameters(kind.load(name)):
        if not one.required and chance.random() > 0.12:
            continue
        try:
            spec = TypeAdapter(one.annotation).json_schema()
        except Exception:  # noqa: BLE001 - a type that has no schema
            continue
        made[one.name] = value(chance, spec, spec.get("$defs", {}), one.name)
        if not one.required and isinstance(one.default, int | float) and chance.random() < 0.8:
            made[one.name] = one.default if isinstance(one.default, bool) else one.default * chance.choice([1, 2, 3])
    return made


def experiment(chance: random.Random, *, odd: bool = True) -> dict[str, Any]:
    """Draw an experiment with mostly valid keys; with `odd`, some values are replaced by others."""
    defs = schema()["$defs"]
    made: dict[str, Any] = {
        "name": "fuzz",
        "cluster": {"nodes": chance.randint(1, 5), "gpus_per_node": chance.choice([2, 4, 4, 4, 8])},
        "workload": _workload(chance),
        "engine": {"restart_delay_s": chance.choice([0, 1, 30, 600]), "interference": chance.choice([0, 0.3])},
        "policies": [policy(chance) for _ in range(chance.choice([1, 1, 2, 3]))],
        "seeds": chance.choice([1, 1, 2, [3], [0, 7]]),
        "report": {"plots": False},
    }
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        _add(chance, made, defs)
    if chance.random() < 0.3:
        made["sweep"] = _sweep(chance, made)
    if odd and chance.random() < 0.35:
        _spoil(chance, made)
    return made


def policy(chance: random.Random) -> dict[str, Any]:
    """Draw a policy with parameters, and sometimes with an agent and its own settings."""
    name = chance.choice(policies())
    made: dict[str, Any] = {"name": name, "params": params(chance, POLICIES, name)}
    if chance.random() < 0.15:
        agent = chance.choice(AGENTS.names())
        made["agent"] = {"name": agent, "params": params(chance, AGENTS, agent)}
    if chance.random() < 0.1:
        made["label"] = chance.choice(_KNOWN["label"])
    if chance.random() < 0.1:
        made["engine"] = {"restart_delay_s": chance.randint(0, 100)}
    return made


def _workload(chance: random.Random) -> dict[str, Any]:
    return chance.choice(
        [
            {"path": "jobs.csv", "recipe": "replay"},
            {"path": "jobs.csv", "recipe": "replay", "sample": chance.randint(1, 12)},
            {"path": "tenants.csv", "recipe": "replay", "max_gpus": chance.randint(1, 4)},
            {"path": "tenants.csv", "recipe": "replay", "deadline_factor": [1.1, 3], "assign": chance.random() < 0.3},
            {"path": "list.csv", "recipe": "as-is"},
            {"source": "philly-synthetic", "recipe": "pollux", "jobs": chance.randint(1, 10), "window_h": 2},
            {"path": "jobs.csv", "recipe": "replay", "assign": True, "sample": 8},
            {"path": "tenants.csv", "recipe": "replay", "speedup": "linear"},
            {"source": "philly-synthetic", "jobs": chance.randint(2, 8), "window_h": 1, "seed": 1},
            {"recipe": "tiresias-example"},
            {"recipe": chance.choice(["sia", "gavel"]), "jobs": chance.randint(1, 8), "jobs_per_hour": 10},
        ]
    )


def _add(chance: random.Random, made: dict[str, Any], defs: Mapping[str, Any]) -> None:
    """Draw a key of a section, or a whole section, of the schema."""
    sections = {
        "cluster": "ClusterSpec",
        "workload": "WorkloadSpec",
        "engine": "EngineSpec",
        "failures": "FailuresSpec",
    }
    if chance.random() < 0.7:
        section = chance.choice(sorted(sections))
        properties = defs[sections[section]]["properties"]
        key = chance.choice(sorted(properties))
        made.setdefault(section, {})[key] = value(chance, properties[key], defs, key)
        if section == "engine" and key == "sharing":
            made["engine"]["sharing"] = {"max_jobs": 2, **made["engine"]["sharing"]}
        return
    properties = schema()["properties"]
    key = chance.choice(
        sorted(set(properties) - {"name", "policies", "workload", "cluster", "sweep", "seeds", "engine"})
    )
    if key == "tuning":
        made.pop("workload", None)
    if key == "published":
        made[key] = {made["policies"][0]["name"]: {chance.choice(sorted(METRICS)): 1.5}}
        return
    made[key] = value(chance, properties[key], defs, key)
    if key == "report" and isinstance(made[key], dict):
        made[key]["plots"] = False


def _sweep(chance: random.Random, made: dict[str, Any]) -> dict[str, list[Any]]:
    places = [f"{section}.{key}" for section in ("cluster", "engine", "workload") for key in made.get(section) or {}]
    key = chance.choice([*places, "engine.restart_delay_s", "cluster.nodes", "failures.node_mtbf_h"])
    return {key: [5, chance.choice([5, 6, 60, *(ODD if chance.random() < 0.2 else ())])]}


def _spoil(chance: random.Random, made: dict[str, Any]) -> None:
    for _ in range(chance.randint(1, 2)):
        section = made[chance.choice(sorted(made))]
        where: Any = chance.choice(section) if isinstance(section, list) and section else section
        where = where if isinstance(where, dict) and where else made
        inner = chance.choice(sorted(where))
        if isinstance(where[inner], dict) and where[inner] and chance.random() < 0.6:
            where, inner = where[inner], chance.choice(sorted(where[inner]))
        where[inner if chance.random() < 0.85 else "surprise"] = chance.choice(ODD)


def places(content: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the places of single values in nested mappings and lists."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    below = [one for key, nested in inner for one in places(nested, (*place, key))]
    return below if isinstance(content, dict | list) else [place]
