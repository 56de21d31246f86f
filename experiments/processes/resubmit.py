"""Users who do not wait."""


def user(site, gpus: int = 8, patience_s: float = 1800, jobs: int = 6):
    """Runs jobs one after another; one that has not begun in time is withdrawn and asks for half the GPUs again."""
    for _ in range(jobs):
        yield site.timeout(site.rng.exponential(1800))
        work_s, asked = gpus * site.rng.lognormal(7, 1), gpus
        while True:
            job = site.submit(num_gpus=asked, duration_s=round(work_s / asked))
            started = site.started(job)
            first = yield site.any_of([started, site.timeout(patience_s)])
            if started in first or asked == 1:
                break
            site.cancel(job)
            asked //= 2
        yield site.finished(job)
