import simsched as sim
from simsched.results import METRICS, read_run
from simsched.results.stays import story

few = {"nodes": 1, "gpus_per_node": 2}
sim.run({"name": "both", "cluster": few, "policies": ["fifo", "srtf"], "workload": {"recipe": "tiresias-example"}})
run = read_run("results/both")  # the folder that `simsched run` also writes
for cell in run.cells:
    print(cell.policy, cell.seed, f"{cell.summary['jct_mean_s']:.1f} s", METRICS["jct_mean_s"].meaning)
# > fifo 1 69.3 s mean of `jct_s` over the finished jobs
# > srtf 1 68.7 s mean of `jct_s` over the finished jobs
for passage in story(run.cells[0], run.cells[0].jobs["job_id"][1]):
    print(passage.time_s, passage.event, passage.why)
# > 0 submitted asks for 1 GPU
# > 0.0 waits no room: 0 GPUs free, 0 GPUs held by jobs that came later
# > 32 starts on 0:1 (node:GPUs)
# > 70.0 ends
