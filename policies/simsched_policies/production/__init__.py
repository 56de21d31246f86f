"""Schedulers of production clusters: Slurm, Volcano, YARN, and nodes put to sleep."""
