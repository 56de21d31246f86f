"""Traces, generated or read, and the job lists made from them: anything becomes a list of `JobSpec`."""
