"""Quotas of cluster queues in a tree of cohorts, as in Kueue: which workloads are admitted, and which preempted.

Pure functions and one ledger of usage, without clock, nodes or GPUs.
"""
