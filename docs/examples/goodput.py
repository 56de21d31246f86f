from simsched.model import BatchLimits
from simsched.model.application import GradientStats
from simsched.model.goodput import GoodputModel
from simsched.model.throughput import ThroughputParams

params = ThroughputParams(0.02, 0.001, 0.06, 0.003, 0.015, 0.002, 2.0)  # seconds, see the class
limits = BatchLimits(init_batch_size=64, max_batch_size=1024, min_local_bsz=16, max_local_bsz=128)
model = GoodputModel(params, GradientStats(sqr=1.0, var=4.0), limits)
best = model.optimise(nodes=[1, 1, 2], gpus=[1, 4, 8])
for gpus, goodput, local, accum in zip([1, 4, 8], *best):
    print(f"{gpus} GPUs: {goodput:.0f} examples/s of the initial batch's worth, {local} each, {accum} accumulated")
# > 1 GPUs: 762 examples/s of the initial batch's worth, 64 each, 0 accumulated
# > 4 GPUs: 1956 examples/s of the initial batch's worth, 40 each, 0 accumulated
# > 8 GPUs: 1870 examples/s of the initial batch's worth, 55 each, 0 accumulated
