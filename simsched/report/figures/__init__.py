"""Figures of results and models; the only package that uses matplotlib."""

from collections.abc import Mapping
from types import MappingProxyType

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

#: The figures of a run with their descriptions; not every figure fits every run.
FIGURES: Mapping[str, str] = MappingProxyType(
    {
        "bars": "metrics of the policies with intervals and published values",
        "jct-cdf": "distribution of job completion times",
        "over-time": "GPUs allocated and statistical efficiency over time",
        "gpu-types": "how busy each GPU type was and how long its jobs took, if there are several",
        "pairs": "speeds of the pairs of jobs that shared a GPU, if these were measured in pairs",
        "occupancy": "nodes down, time across: which job held which GPUs, and nodes out of use (first seed)",
        "queue-over-time": "waiting jobs over time, by tenant (first seed)",
        "job-timeline": "GPUs, batch size and efficiency of the largest job",
        "zones": "what the largest job held in each zone of a market, when spot nodes were to be had, and prices",
        "nodes-over-time": "nodes rented or up, if they vary",
        "trials": "hyper-parameter tuning as it proceeds",
        "sweep-KEY": "metrics against the values of a swept key",
        "ratios-KEY": "mean JCT over the reference's, seed by seed, against the values of the only swept key",
        "map-KEY-KEY": "mean JCT over two swept keys, a map for each policy",
        "rho-cdf": "distribution of finish-time fairness",
        "co-adaptation": "jobs that the experiment asks to follow",
        "placement": "mean JCT, time across racks and fragmentation, if these are recorded",
        "quality": "how the losses of jobs fall, if they are recorded",
        "predictions": "how true a policy's predictions of completion and speed were",
        "jct-parts": "what completion times consist of, over a sweep",
        "deadlines": "deadlines met, those of admitted jobs met, and deadlines declined",
        "deadlines-KEY": "the same against the values of a swept key",
        "agents": "schedulers in panels, a line for each agent that adapts batches",
        "tenants": "mean waits by tenant and size, if the experiment has tenants",
        "quotas": "quota, borrowed and reclaimed GPUs by queue over time, if a policy records them",
        "by-LEVEL": "share of the GPUs in use over time by rack or island, if these are listed",
        "sharing": "what GPUs achieve that are shared, completion times and utilisation",
    }
)
