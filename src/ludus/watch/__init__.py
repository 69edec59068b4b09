"""Watching a run: alerts, vital signs, tensors that are not finite."""
