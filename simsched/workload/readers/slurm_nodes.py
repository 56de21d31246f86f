"""Slurm's description of a cluster: the output of `scontrol show node`, or of `sinfo -N` with GPUs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from simsched.errors import InputError, Problem, input_error
from simsched.reading import parse_json, read_text

_FIELD = re.compile(r"(\w+)=(\S*)")
_RANGE = re.compile(r"^(.*?)\[([^\]]*)\](.*)$")
#: The most nodes that one text may stand for, as in Slurm, and the most GPUs of a node.
MOST_NODES = 65_536
_MOST_GPUS = 65_536
#: Longer numbers are truncated and are still too large to be valid.
_DIGITS = 12


class _TooManyError(Exception):
    """A text that stands for too many nodes."""


@dataclass(frozen=True)
class SlurmNode:
    """A node: its GPUs and their type, processors, memory in MB, partitions and state."""

    name: str
    gpus: int
    gpu_type: str = ""
    cpus: int = 0
    memory_mb: int = 0
    partitions: tuple[str, ...] = ()
    state: str = ""

    @property
    def works(self) -> bool:
        """Return whether its state lets jobs start."""
        return not re.search(r"down|drain|drng|fail|maint|power_?off|unk", self.state)


@dataclass(frozen=True)
class SlurmCluster:
    """The nodes of a cluster, by name."""

    nodes: tuple[SlurmNode, ...]

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    def makes(self) -> tuple[tuple[SlurmNode, ...], ...]:
        """Return the nodes with GPUs in groups of equal nodes, sorted by type, size and then other properties."""
        found: dict[tuple[Any, ...], list[SlurmNode]] = {}
        for node in self.nodes:
            if node.gpus:
                kind = (node.gpu_type, node.gpus, node.cpus, node.memory_mb, node.partitions)
                found.setdefault(kind, []).append(node)
        return tuple(tuple(found[kind]) for kind in sorted(found))

    def groups(self) -> tuple[tuple[int, int, str], ...]:
        """Return (nodes, GPUs per node, type) of the nodes with GPUs, sorted by type and size."""
        count = Counter((one[0].gpu_type, one[0].gpus) for one in self.makes() for _ in one)
        return tuple((nodes, gpus, kind) for (kind, gpus), nodes in sorted(count.items()))


def describes_nodes(text: str) -> bool:
    """Return whether a text looks like input of `read_nodes`."""
    return "NodeName=" in text or "NODELIST" in text or (text.lstrip().startswith("{") and '"nodes"' in text)


def read_nodes(path: str | Path) -> SlurmCluster:
    """Read `scontrol show node`, plain or with `--json`, or `sinfo -N` with a header that has NODELIST and GRES.

    A node in several partitions is one node. Raises `InputError` if the file is neither or names no node, or if two
    lines about a node disagree.
    """
    place = Path(path)
    text = read_text(place)
    reads = _scontrol if "NodeName=" in text else partial(_json if text.lstrip().startswith("{") else _sinfo, place)
    found = list(reads(text))
    nodes: dict[str, SlurmNode] = {}
    for line, node in found:
        if node.gpus > _MOST_GPUS:
            raise input_error(place, f"node '{node.name:.40}' has {node.gpus} GPUs", "correct its Gres", line=line)
        known = nodes.get(node.name)
        if known is not None and (known.gpus, known.gpu_type) != (node.gpus, node.gpu_type):
            message = f"node '{node.name}' has different GPUs than on an earlier line"
            raise InputError(Problem(str(place), message, "describe it once", line))
        partitions = tuple(sorted({*node.partitions, *(known.partitions if known else ())}))
        nodes[node.name] = SlurmNode(
            node.name, node.gpus, node.gpu_type, node.cpus, node.memory_mb, partitions, node.state
        )
    if not nodes:
        raise input_error(place, "describes no node", "give the output of `scontrol show node`")
    return SlurmCluster(tuple(nodes[name] for name in sorted(nodes)))


def _scontrol(text: str) -> Iterator[tuple[int, SlurmNode]]:
    begins = [match.start() for match in re.finditer(r"NodeName=", text)]
    partitions = _partitions_of(text)
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        fields = dict(_FIELD.findall(text[begin:end].split("PartitionName=")[0]))
        gpus, kind = _gres(fields.get("Gres", ""))
        if not gpus:
            gpus, kind = _gres(fields.get("CfgTRES", "").replace("gres/", ""))
        named = {name for name in fields.get("Partitions", "").split(",") if name}
        cpus = _whole(fields.get("CPUTot", "") or fields.get("CPUs", ""))
        state = fields.get("State", "").lower().replace("unknown", "")  # of slurm.conf: wherever it is
        line, memory = text.count("\n", 0, begin) + 1, _whole(fields.get("RealMemory", ""))
        for name in expand_nodes(fields["NodeName"]) if fields["NodeName"] != "DEFAULT" else ():
            inside = tuple(sorted(named | partitions.get(name, set())))
            yield line, SlurmNode(name, gpus, kind, cpus, memory, inside, state)


def _json(path: Path, text: str) -> Iterator[tuple[int, SlurmNode]]:
    try:
        nodes = parse_json(text, path)["nodes"]
        for i, node in enumerate(nodes, 1):
            gpus, kind = _gres(node.get("gres", ""))
            state, memory = node.get("state", ""), node.get("real_memory", 0)
            words = " ".join(state) if isinstance(state, list) else str(state)
            partitions = tuple(sorted(node.get("partitions", ())))
            yield (
                i,
                SlurmNode(node["name"], gpus, kind, int(node.get("cpus", 0)), int(memory), partitions, words.lower()),
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise input_error(path, f"does not describe nodes ({error})", "give `scontrol show node --json`") from None


def _partitions_of(text: str) -> dict[str, set[str]]:
    """Return the partitions of each node from lines of slurm.conf such as PartitionName=gpu Nodes=g[1-4]."""
    found: dict[str, set[str]] = {}
    for line in re.findall(r"(?m)^\s*PartitionName=.*$", text):
        fields = dict(_FIELD.findall(line))
        for name in expand_nodes(fields.get("Nodes", "")):
            found.setdefault(name, set()).add(fields["PartitionName"])
    return found


def _sinfo(path: Path, text: str) -> Iterator[tuple[int, SlurmNode]]:
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    split = "|" if lines and "|" in lines[0][1] else None
    header = [name.strip() for name in lines[0][1].split(split)] if lines else []
    if "NODELIST" not in header or "GRES" not in header:
        remedy = "give the output of `scontrol show node`, or of `sinfo -N -o '%N|%P|%G|%c|%m|%t'`"
        raise input_error(path, "does not describe nodes", remedy, line=1)
    for i, line in lines[1:]:
        row = dict(zip(header, (cell.strip() for cell in line.split(split)), strict=False))
        gpus, kind = _gres(row.get("GRES", ""))
        partition = row.get("PARTITION", "").rstrip("*")
        for name in expand_nodes(row["NODELIST"]):
            cpus, memory = _whole(row.get("CPUS", "")), _whole(row.get("MEMORY", ""))
            state = row.get("STATE", "").rstrip("*~#").lower()
            yield i, SlurmNode(name, gpus, kind, cpus, memory, (partition,) if partition else (), state)


def _gres(text: str) -> tuple[int, str]:
    """Return the number and types of GPUs in a text such as gpu:a100:8(S:0-1)."""
    text = re.sub(r"\([^)]*\)", "", text)
    typed: list[tuple[str, int]] = []
    plain: list[tuple[str, int]] = []
    for part in text.split(","):
        pieces = re.split(r"[:=]", part)
        if pieces[0] == "gpu" and re.fullmatch("[0-9]+", pieces[-1]):
            (typed if len(pieces) > 2 else plain).append((pieces[1], int(pieces[-1][:_DIGITS])))
    if typed:
        return sum(count for _, count in typed), "+".join(sorted({kind for kind, _ in typed}))
    return sum(count for _, count in plain), ""


def _whole(text: str) -> int:
    digits = re.match("[0-9]+", text)
    return int(digits.group()[:_DIGITS]) if digits else 0


def expand_nodes(text: str) -> list[str]:
    """List the names that a text such as gpu[01-03,7],login1 stands for; none for an empty one.

    Raises `InputError` if it stands for more than `MOST_NODES`.
    """
    names: list[str] = []
    try:
        for part in _parts(text.strip()):
            names += _expanded(part)
    except (_TooManyError, RecursionError):
        message = f"'{text:.60}' stands for more than {MOST_NODES} nodes"
        raise input_error("list of nodes", message, "correct its ranges") from None
    return [name for name in names if name and name not in ("None assigned", "(null)")]


def _parts(text: str) -> Iterator[str]:
    depth, begin = 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield text[begin:i]
            begin = i + 1
    yield text[begin:]


def _expanded(text: str) -> list[str]:
    match = _RANGE.match(text)
    if match is None:
        return [text]
    before, inside, after = match.groups()
    names: list[str] = []
    for piece in inside.split(","):
        first, _, last = piece.partition("-")
        if max(len(first), len(last)) > _DIGITS:
            raise _TooManyError
        numbers = range(int(first), int(last or first) + 1) if first.isdecimal() and (last or "0").isdecimal() else ()
        rests = _expanded(after)
        if len(names) + len(numbers) * len(rests) > MOST_NODES:
            raise _TooManyError
        names += [f"{before}{number:0{len(first)}d}{rest}" for number in numbers for rest in rests]
    return names
