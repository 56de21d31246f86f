"""Find which durations within the published bins fit Tiresias's testbed, and the resulting ratios.

    simsched run tiresias/testbed-mixes
    python benchmarks/tiresias_mixes.py results/tiresias-testbed-mixes

Durations within the bins are not published. Queueing delays and makespans are (Tiresias, NSDI'19, Table 4 and section
5.2): a mix fits if the mean queueing delays of YARN-CS and SRTF and the makespans of all three are off by at most a
factor that is printed, the smallest under which at least three mixes fit, rounded up to the next 0.05. The ratio of
mean JCTs and the delays under Tiresias-L are not used: they are the result.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from simsched.results import Row, comparison, ratio_of_means, read_run

PUBLISHED = {
    ("YARN-CS", "queueing_mean_s"): 8146,
    ("SRTF", "queueing_mean_s"): 593,
    ("YARN-CS", "makespan_s"): 33270,
    ("SRTF", "makespan_s"): 28070,
    ("Tiresias-L", "makespan_s"): 27400,
}
LEAST = 3


def misfit(rows: dict[str, Row]) -> float:
    """Return the largest factor by which a figure is off."""
    found = []
    for (policy, metric), published in PUBLISHED.items():
        estimate = rows[policy].estimate(metric)
        assert estimate is not None
        found.append(math.exp(abs(math.log(max(estimate.mean, 1) / published))))
    return max(found)


def main() -> None:
    """Print a line for each mix, the best first, and the band."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    run = read_run(parser.parse_args().run)
    points: dict[str, dict[str, Row]] = {}
    for row in comparison(run):
        point = ", ".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in row.point.items())
        points.setdefault(point, {})[row.policy] = row
    print("largest factor off, YARN-CS / Tiresias-L, the same with a threshold of 12,800, mean queueing of Tiresias-L")
    ranked = sorted((misfit(rows), point) for point, rows in points.items())
    limit = math.ceil(20 * ranked[min(LEAST, len(ranked)) - 1][0]) / 20
    band: dict[str, list[float]] = {"Tiresias-L": [], "Tiresias-L, 12,800": []}
    for off, point in ranked:
        yarn = points[point]["YARN-CS"].values["jct_mean_s"]
        ratios = {name: ratio_of_means(yarn, points[point][name].values["jct_mean_s"]) for name in band}
        queueing = points[point]["Tiresias-L"].estimate("queueing_mean_s")
        shown = [f"{ratio.mean:.2f}" for ratio in ratios.values() if ratio is not None]
        print(f"{point:<50} {off:5.2f}  {'  '.join(shown)}  {queueing.mean if queueing else math.nan:7.0f} s")
        if off <= limit:
            for name, ratio in ratios.items():
                band[name] += [] if ratio is None else [ratio.mean]
    print(f"within a factor of {limit:.2f}: " + "; ".join(f"{n} {min(v):.2f} to {max(v):.2f}" for n, v in band.items()))


if __name__ == "__main__":
    main()
