"""Lists of pods and of nodes as Alibaba published them with cluster-trace-gpu-v2023, for packing parts of GPUs.

Pods: `name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec]`, models that a pod accepts separated by |. Nodes:
`sn,cpu_milli,memory_mib,gpu[,model]`. As a trace of jobs the list of pods is read by `simsched.workload.readers`, where
a part of a GPU counts as a whole one, since jobs of the engine hold whole GPUs.
"""

from __future__ import annotations

from pathlib import Path

from simsched.errors import input_error
from simsched.model.pod import GPU_MILLI, Pod, PodNode
from simsched.workload.readers.sheet import Sheet, open_sheet

_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu")


def read_pods(path: str | Path) -> list[Pod]:
    """Read a list of pods (plain or .gz); raises `InputError` with every cell that is wrong, by line."""
    sheet = open_sheet(Path(path), _POD_COLUMNS)
    gpus = sheet.number("num_gpu", least=0, whole=True)
    milli = sheet.number("gpu_milli", least=0, whole=True)
    sheet.blame("gpu_milli", (gpus > 0) & (milli <= 0), "is no part of a GPU")
    sheet.blame("gpu_milli", milli > GPU_MILLI, f"is more than a whole GPU ({GPU_MILLI})")
    columns = zip(
        sheet.unique("name"),
        sheet.number("cpu_milli", least=0, whole=True),
        sheet.number("memory_mib", least=0, whole=True),
        gpus,
        milli * (gpus > 0),
        _texts(sheet, "gpu_spec"),
        strict=True,
    )
    sheet.check()
    return [Pod(name, int(c), int(m), int(g), int(p), _models(spec)) for name, c, m, g, p, spec in columns]


def read_nodes(path: str | Path) -> list[PodNode]:
    """Read a list of nodes (plain or .gz); raises `InputError` with every cell that is wrong, by line."""
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
    nodes = [PodNode(name, int(c), int(m), int(g), model) for name, c, m, g, model in columns]
    if not any(node.gpus for node in nodes):
        raise input_error(path, "no node has a GPU", "give at least one with 'gpu' above 0")
    return nodes


def _texts(sheet: Sheet, column: str) -> list[str]:
    return list(sheet.text(column)) if column in sheet else [""] * len(sheet)


def _models(spec: str) -> frozenset[str]:
    return frozenset(name.strip() for name in spec.split("|") if name.strip())
