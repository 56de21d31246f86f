"""Run every shipped policy under several settings of processor and threads, and compare the bytes of its tables.

Usage: python benchmarks/same_bytes.py [--policy NAME ...] [--jobs N] [--settings NAME ...]

The jobs train on two GPU types, share GPUs and lose nodes; policies without sharing do not share. Every setting is a
separate process, which disables instructions before numpy, OpenBLAS or numba detect them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from simsched.policy import registry

EXPERIMENT = """\
name: same-bytes
cluster:
  groups:
    - {{nodes: 12, gpus_per_node: 4, gpu_type: t4}}
    - {{nodes: 6, gpus_per_node: 8, gpu_type: a100}}
workload:
  {{source: philly-generated, recipe: pollux, jobs: {jobs}, window_h: 1, configs: tuned, guaranteed_share: 0.4}}
applications: {{extra_types: sia}}
engine: {{restart_delay_s: 30, sharing: {{max_jobs: 2, model: constant, factor: 0.7}}}}
failures:
  {{node_mtbf_h: 20, repair_median_h: 1, repair_sigma: 1, checkpoint_interval_s: 1800, checkpoint_cost_s: 10}}
policies: [{policies}]
seeds: 1
report: {{plots: false}}
"""

#: Exceptions for single policies: queues of KAI without their own GPUs take no guaranteed jobs.
ROWS = {"kai": ", workload: {guaranteed_share: 0}"}

SETTINGS = {
    "OpenBLAS for Prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "OpenBLAS for Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "OpenBLAS for SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "numpy without AVX-512": {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
    "numpy without AVX2": {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"},
    "numba for any x86-64": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "4 threads": dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "4"),
    "C library without FMA": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX2_Usable,-FMA_Usable"},
}


def tables_of(folder: Path) -> dict[str, str]:
    """Return a digest of the tables and the summary of each policy in a run's folder."""
    found = {}
    for cell in sorted((folder / "cells").iterdir()):
        policy = json.loads((cell / "manifest.json").read_text(encoding="utf-8"))["policy"]["name"]
        files = [*sorted(cell.glob("*.parquet")), cell / "summary.json"]
        found[policy] = sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return found


def run(experiment: Path, out: Path, environment: dict[str, str]) -> dict[str, str]:
    """Run the experiment in separate processes and return the digests."""
    command = [sys.executable, "-c", "from simsched.cli.entry import main; main()", "run", str(experiment)]
    command += ["--out", str(out), "--name", "run", "--no-plots", "--in-process"]
    found = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(found.stderr)
    return tables_of(out / "run")


def compare(policies: list[str], jobs: int, settings: list[str]) -> dict[str, list[str]]:
    """Return by setting the policies whose tables differ from those of this machine's default."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        experiment = folder / "same-bytes.yaml"
        rows = ", ".join(f"{{name: {one}{ROWS.get(one, '')}}}" for one in policies)
        experiment.write_text(EXPERIMENT.format(jobs=jobs, policies=rows))
        here = run(experiment, folder / "here", {})
        if sorted(here) != sorted(policies):
            raise SystemExit(f"no tables of {', '.join(sorted(set(policies) - set(here)))}")
        differing = {}
        for number, setting in enumerate(settings):
            found = run(experiment, folder / str(number), SETTINGS[setting])
            differing[setting] = [policy for policy in policies if found[policy] != here[policy]]
    return differing


def main() -> int:
    """Print the table; return 1 if any tables differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", help="only this one; repeatable")
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    given = parser.parse_args()
    policies = given.policy or list(registry.names())
    differing = compare(policies, given.jobs, given.settings)
    print(f"| setting | policies with equal bytes, of {len(policies)} | others |\n|---|---:|---|")
    for setting, others in differing.items():
        print(f"| {setting} | {len(policies) - len(others)} | {', '.join(others)} |")
    return int(any(differing.values()))


if __name__ == "__main__":
    sys.exit(main())
