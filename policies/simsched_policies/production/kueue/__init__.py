"""Quotas of cluster queues in a tree of cohorts, as in Kueue: what may be admitted, and who must make way.

Pure functions and one ledger of usage, without clock, nodes or GPUs.
"""
