"""Closed-loop workloads, whose jobs follow from other jobs; known job lists belong to `workload`."""
