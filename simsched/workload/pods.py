"""Lists of pods and nodes as published with Alibaba's cluster-trace-gpu-v2023, for packing parts of GPUs.

Pods: `name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec]`, models that a pod accepts separated by |. Nodes:
`sn,cpu_milli,memory_mib,gpu[,model]`. `simsched.workload.readers` reads the same list as a trace of jobs and counts a
part of a GPU as a whole one, since jobs of the engine hold whole GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simsched.errors import input_error
from simsched.model import Node
from simsched.model.placement import GPU_MILLI, Pod, models_of
from simsched.workload.readers.sheet import Sheet, open_sheet

_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
#: Columns that only a trace of jobs needs; packing ignores time.
_POD_IDLE = ("qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu")


def read_pods(path: str | Path, nodes: Sequence[Node] = ()) -> list[Pod]:
    """Read a list of pods (plain or .gz); raises `InputError` with every wrong cell by line.

    If `nodes` are given, a cell is also wrong if it requests more than any node has, or only models that no node has.
    """
    sheet = open_sheet(Path(path), _POD_COLUMNS, idle=_POD_IDLE)
    gpus = sheet.number("num_gpu", least=0, whole=True)
    milli = sheet.number("gpu_milli", least=0, whole=True)
    sheet.blame("gpu_milli", (gpus > 0) & (milli <= 0), "is not a part of a GPU")
    sheet.blame("gpu_milli", milli > GPU_MILLI, f"is more than a whole GPU ({GPU_MILLI})")
    cpu, memory = (sheet.number(name, least=0, whole=True) for name in ("cpu_milli", "memory_mib"))
    specs = _texts(sheet, "gpu_spec")
    columns = zip(sheet.unique("name"), cpu, memory, gpus, milli * (gpus > 0), specs, strict=True)
    if nodes:
        most = {
            "cpu_milli": (cpu, max(node.cpu_milli or 0 for node in nodes)),
            "memory_mib": (memory, max(node.memory_mib or 0 for node in nodes)),
            "num_gpu": (gpus, max(node.gpus for node in nodes)),
        }
        for column, (asked, there) in most.items():
            sheet.blame(column, asked > there, f"is more than any node has ({there})")
        models = {node.gpu_type for node in nodes} - {""}
        asks = zip(gpus, specs, strict=True)
        alien = [bool(g > 0 and models_of(spec) and not models_of(spec) & models) for g, spec in asks]
        known = ", ".join(sorted(models)) or "none has any"
        sheet.blame("gpu_spec", np.array(alien, dtype=np.bool_), f"names no model of the nodes ({known})")
    sheet.check()
    return [Pod(name, int(c), int(m), int(g), int(p), spec) for name, c, m, g, p, spec in columns]


def read_nodes(path: str | Path) -> list[Node]:
    """Read a list of nodes (plain or .gz); raises `InputError` with every wrong cell by line."""
    sheet = open_sheet(Path(path), _NODE_COLUMNS)
    columns = zip(
        sheet.unique("sn"),
        sheet.number("cpu_milli", least=0, whole=True),
        sheet.number("memory_mib", least=0, whole=True),
        sheet.number("gpu", least=0, whole=True),
        _texts(sheet, "model"),
        strict=True,
    )
    sheet.check()
    nodes = [
        Node(place, int(gpus), model, name=name, cpu_milli=int(cpu), memory_mib=int(memory))
        for place, (name, cpu, memory, gpus, model) in enumerate(columns)
    ]
    if not any(node.gpus for node in nodes):
        raise input_error(path, "no node has a GPU", "give at least one with 'gpu' above 0")
    return nodes


def _texts(sheet: Sheet, column: str) -> list[str]:
    return list(sheet.text(column)) if column in sheet else [""] * len(sheet)
