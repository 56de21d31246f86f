"""Slurm: multifactor priority and backfill on the time limits of users; the parts, and the policy built on them."""
