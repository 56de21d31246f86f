"""What runs beside a job: its measurements, the fit of its throughput, the choice of its batch; no policies."""
