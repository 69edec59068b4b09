"""Ludus: one reinforcement-learning lab. Config-first, every part swappable, every run reproducible."""

__version__ = "0.1.0"
