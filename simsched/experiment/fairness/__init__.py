"""Solo runs of jobs and the finish-time fairness they give to finished cells; no cell depends on it."""
