"""Watches a run: alerts, speed and memory, tensors that are not finite."""
