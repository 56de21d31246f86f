import simsched as sim

jobs = [{"num_gpus": 4, "submit_time_s": 60 * i, "duration_s": 600} for i in range(3)]
found = sim.simulate(jobs=jobs, policy="srtf", cluster=(1, 8), restart_delay_s=0)
print(found.jobs[["job_id", "start_time_s", "end_time_s"]].to_string(index=False))
# > job_id  start_time_s  end_time_s
# >  job-0             0         600
# >  job-1            60         660
# >  job-2           600        1200

run = sim.run({"name": "both", "policies": ["fifo", "srtf"], "workload": {"recipe": "tiresias-example"}})
print(run.table()["makespan_s"].to_dict())
# > {'fifo': 38.0, 'srtf': 38.0}
