"""Kubernetes objects from files: exact quantities, pods, workloads and nodes; no client library, no cluster."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
