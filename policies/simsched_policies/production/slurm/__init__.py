"""Slurm: multifactor priority and backfill on the time limits that users gave; pieces first, the policy on top."""
