"""Rules that change the batch of a running training, with no scheduler's doing; pure functions of state and metrics."""
