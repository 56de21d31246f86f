"""Schedulers of Kubernetes, Kueue and KAI-Scheduler; what reads their manifests is `simsched.manifests`."""
