"""Autograd kernels of memory cores."""
