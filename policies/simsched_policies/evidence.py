"""How each shipped policy was checked, strongest kind first.

*replay*: published runs are reproduced to the second. *oracle*: an independent implementation, written from the paper
or a description, agrees job by job or value by value. *closed form*: queueing theory gives the result. *cases*:
decisions are worked by hand from the paper or manual. *direction*: published comparisons have the same sign here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Kind = Literal["replay", "oracle", "closed form", "cases", "direction"]


class Evidence(NamedTuple):
    """One check of a policy: its kind, its result, and the page or test that shows it."""

    kind: Kind
    said: str
    shown: str


_QUEUES = Evidence(
    "oracle",
    "plain loops over seconds give every completion time of overloaded random workloads",
    "tests/validation/test_queue_oracles.py",
)
_ONE_SERVER = Evidence(
    "closed form",
    "mean response times on one server are those of M/G/1 theory",
    "tests/validation/test_preemptive_queues.py",
)
_PROGRAM = Evidence(
    "oracle",
    "a second solver finds nothing better in 500 random programs of each objective",
    "docs/reproduction-gavel.md",
)
_BESIDE_GAVEL = "its figures beside those of Gavel's evaluation"
_GAVEL_JCT = Evidence("direction", _BESIDE_GAVEL, "docs/reproduction-gavel.md")
_GAVEL_PROGRAM = Evidence("direction", _BESIDE_GAVEL, "docs/reproduction-gavel.md")
_GAVEL_CASES = Evidence("cases", "shares and rounds worked by hand", "tests/policies/test_gavel_policies.py")
_HAND = "decisions worked by hand from the paper"
_MURI = Evidence(
    "cases", "who is grouped worked by hand; a replay shares the grouping", "tests/policies/test_sharing_policies.py"
)
_ARTIFACT = Evidence(
    "replay", "all 640 completion times published with Pollux, equal to the second", "docs/validation.md"
)
_HELIOS = Evidence(
    "direction", "mean JCT on real jobs beside Helios's and Lucid's", "tests/validation/test_helios_order.py"
)
_OPERATED = Evidence(
    "cases", "decisions worked by hand from the documentation", "tests/policies/test_tenant_policies.py"
)

_SPOT = Evidence("replay", "every published cost of its sweeps, to 1e-6 dollars", "docs/spot.md")
_SPOT_CASES = Evidence("cases", "what it holds worked by hand", "tests/cli/test_spot.py")

EVIDENCE: Mapping[str, tuple[Evidence, ...]] = {
    "antman": (
        Evidence("direction", "its gain over Gandiva", "docs/reproduction-sharing.md"),
        Evidence("cases", _HAND, "tests/policies/test_sharing_policies.py"),
    ),
    "best-effort": (Evidence("cases", _HAND, "tests/policies/test_tiresias.py"),),
    "ces": (Evidence("cases", _HAND, "tests/policies/test_ces.py"),),
    "chronus": (Evidence("cases", _HAND, "tests/policies/test_deadline_policies.py"),),
    "crux": (Evidence("cases", "order, paths and levels worked by hand", "tests/policies/test_crux.py"),),
    "edf": (Evidence("cases", _HAND, "tests/policies/test_deadline_policies.py"),),
    "elasticflow": (
        Evidence("direction", "deadlines met, beside ElasticFlow's evaluation", "docs/reproduction-elasticflow.md"),
        Evidence("cases", _HAND, "tests/policies/test_deadline_policies.py"),
    ),
    "fair-share": (Evidence("direction", "what SLAQ gains over it", "docs/reproduction-tiresias.md"),),
    "fifo": (
        _QUEUES,
        Evidence("closed form", "M/M/c and M/G/1", "tests/validation/test_queueing_theory.py"),
        Evidence("oracle", "ends of 100,000 jobs equal a textbook's and AccaSim's", "docs/performance.md"),
        _HELIOS,
    ),
    "fractional": (
        Evidence("oracle", "pod by pod against plain loops", "tests/toolkit/test_packing.py"),
        Evidence("direction", "GPUs allocated beside FGD's ten seeds, 52 of 54 within the bar", "docs/sharing.md"),
    ),
    "gandiva": (
        Evidence("direction", "what packing gains", "docs/reproduction-sharing.md"),
        Evidence("cases", _HAND, "tests/policies/test_sharing_policies.py"),
    ),
    "gavel-allox": (_PROGRAM, _GAVEL_CASES),
    "gavel-fifo": (
        Evidence(
            "oracle",
            "110 seeds of Gavel's simulator in plain loops, every job",
            "tests/validation/test_gavel_oracle.py",
        ),
        _GAVEL_JCT,
    ),
    "gavel-finish-time-fairness": (_PROGRAM, _GAVEL_JCT),
    "gavel-gandiva": (_GAVEL_PROGRAM, _GAVEL_CASES),
    "gavel-gandiva-fair": (_GAVEL_CASES,),
    "gavel-hierarchical": (_PROGRAM, _GAVEL_PROGRAM),
    "gavel-isolated": (_GAVEL_CASES,),
    "gavel-makespan": (_PROGRAM, Evidence("replay", "the recorded static makespan", "docs/reproduction-gavel.md")),
    "gavel-max-min": (_PROGRAM, _GAVEL_JCT),
    "gavel-max-throughput": (_PROGRAM, _GAVEL_PROGRAM),
    "gavel-min-cost": (_PROGRAM, _GAVEL_PROGRAM),
    "gavel-min-jct": (_PROGRAM,),
    "gavel-pop": (_PROGRAM, _GAVEL_PROGRAM),
    "gavel-proportional": (_PROGRAM,),
    "gavel-water-filling": (_PROGRAM, _GAVEL_PROGRAM),
    "gittins": (_QUEUES,),
    "horus": (Evidence("cases", _HAND, "tests/policies/test_sharing_policies.py"),),
    "isolated": (_QUEUES,),
    "kai": (
        Evidence("cases", "all 81 cases at hand of the test tables of KAI-Scheduler", "docs/how-to/kubernetes.md"),
        Evidence("cases", "rounds worked by hand from its rules", "tests/kubernetes/test_kai_round.py"),
    ),
    "kueue": (
        Evidence(
            "cases",
            "all public cases of Kueue's own tests: 62 cycles, 145 assignments of flavours, 146 of topologies",
            "docs/sharing.md",
        ),
        Evidence("cases", "cycles worked by hand", "tests/kubernetes/test_quota_scenarios.py"),
    ),
    "las": (_QUEUES, _ONE_SERVER),
    "lucid": (Evidence("cases", _HAND, "tests/policies/test_sharing_policies.py"),),
    "muri-l": (_MURI,),
    "muri-s": (_MURI,),
    "optimus": (_ARTIFACT,),
    "optimus-online": (Evidence("direction", "what learning online costs", "docs/reproduction-tiresias.md"),),
    "or-elastic": (
        Evidence("oracle", "nodes second by second", "tests/validation/test_scaling_oracles.py"),
        Evidence("direction", "one ImageNet job in a cloud", "docs/failures.md"),
    ),
    "pollux": (
        Evidence("direction", "Table 2 and Figures 7 and 8 of its evaluation", "docs/reproduction.md"),
        Evidence("oracle", "captured rounds: allocations as fit as the published search's", "docs/validation.md"),
    ),
    "pollux-autoscale": (
        Evidence("oracle", "the sizing rule by trying every size", "tests/validation/test_scaling_oracles.py"),
        Evidence("direction", "one ImageNet job in a cloud", "docs/failures.md"),
    ),
    "qssf": (_HELIOS,),
    "recorded": (Evidence("replay", "240 completion times of Shockwave's recordings", "docs/reproduction-sia.md"),),
    "rubick": (Evidence("cases", _HAND, "tests/policies/test_rubick.py"),),
    "shockwave": (
        Evidence(
            "oracle", "the plan of a window against the same program by a second solver", "docs/reproduction-sia.md"
        ),
        Evidence("direction", "the table of its evaluation", "docs/reproduction-sia.md"),
    ),
    "sia": (_PROGRAM, Evidence("direction", "Tables 3 and 4 of its evaluation", "docs/reproduction-sia.md")),
    "sjf": (_QUEUES, _HELIOS),
    "slaq": (Evidence("direction", "mean loss and time to quality", "docs/reproduction-tiresias.md"),),
    "slurm-backfill": (
        Evidence("oracle", "starts of 100,000 jobs equal a textbook EASY's", "docs/performance.md"),
        Evidence("cases", "limits, preemption and reservations worked by hand from the manual", "docs/slurm.md"),
    ),
    "smallest-first": (_QUEUES,),
    "srsf": (_QUEUES, _ONE_SERVER),
    "srtf": (_QUEUES,),
    "static": (Evidence("direction", "the baseline of Pollux's Table 3", "docs/reproduction.md"),),
    "themis": (
        Evidence("oracle", "auctions equal enumeration in 2,000 cases", "tests/toolkit/test_auction.py"),
        Evidence("direction", "largest finish-time ratio", "docs/reproduction-tiresias.md"),
    ),
    "themis-rho": (Evidence("cases", _HAND, "tests/policies/test_sharing_policies.py"),),
    "time-slicing": (_QUEUES,),
    "tiresias": (
        _ARTIFACT,
        Evidence("oracle", "the public simulator of Tiresias in plain loops", "docs/reproduction-tiresias.md"),
    ),
    "tiresias-g": (_QUEUES,),
    "volcano": (_OPERATED,),
    "yarn-cs": (_QUEUES, _OPERATED),
    "external": (Evidence("oracle", "its shipped client gives the bytes of srtf", "tests/policies/test_external.py"),),
    "on-demand-only": (_SPOT_CASES,),
    "spot-optimum": (_SPOT,),
    "spot-until-last": (_SPOT_CASES,),
    "uniform-progress": (_SPOT,),
    "uniform-progress-s": (_SPOT,),
    "uniform-progress-a": (_SPOT,),
    "uniform-progress-ap": (_SPOT,),
}
