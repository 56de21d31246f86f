"""Schedulers of production clusters: Slurm, Kueue, Volcano, YARN, HiveD, and nodes put to sleep."""
