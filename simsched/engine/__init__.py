"""The simulation engine: the clock, the processes, the state, the random streams and the invariants."""
