"""The recipes that turn a trace into jobs, a file each; reading traces belongs to `workload.readers`."""
