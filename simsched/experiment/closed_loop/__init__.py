"""Closed-loop workloads, in which jobs depend on the results of other jobs; `workload` has fixed job lists."""
