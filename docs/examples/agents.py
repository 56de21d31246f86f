from simsched.agent import registry
from simsched.applications import catalogue
from simsched.model import Cluster, JobSpec
from simsched.model.application import facts_of
from simsched.model.topology import site_of

cluster = Cluster.uniform(2, 4)
application = catalogue().applications["cifar10"]
job = JobSpec("a", 0, 2, application="cifar10", batch_size=256)
agents = registry.load("adabatch")(epochs=10, factor=2)  # what an experiment names, with its params
agents.begin(cluster)
agent = agents.agent(job.request, facts_of(application, job.shape))
one_node, two_nodes = site_of(cluster, ((0, 2),)), site_of(cluster, ((0, 4), (1, 4)))
for site, epoch in ((one_node, 0), (one_node, 10), (two_nodes, 10)):
    batch = agent.choose(site, epoch)
    print(f"epoch {epoch}, {site.gpus} GPUs: {batch.local_bsz} each, {batch.total(site.gpus)} in all")
# > epoch 0, 2 GPUs: 128 each, 256 in all
# > epoch 10, 2 GPUs: 256 each, 512 in all
# > epoch 10, 8 GPUs: 64 each, 512 in all
