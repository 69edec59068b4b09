"""Environments of our own and adapters for packages of environments."""
