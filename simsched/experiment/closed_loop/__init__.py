"""Workloads whose jobs follow from other jobs; lists of jobs known beforehand belong to `workload`."""
