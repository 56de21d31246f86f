"""Leaves a process that holds the standard error of the run, and says which it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from simsched.policy import Decision, Policy

#: What the index of the run says of its cells; empty where they end as any other's.
OUTCOME = ""


class Hostile(Policy):
    """First come, first served on node 0, badly meant."""

    name = "leaves-a-process"

    def decide(self, view, rng):
        if not getattr(self, "left", None):
            self.left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path("left").write_text(str(self.left.pid), encoding="ascii")
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
