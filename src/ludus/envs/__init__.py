"""Environments: one vector contract over every backend, wrappers by name, refusals at the border."""
