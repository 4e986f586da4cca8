"""Timing the kernels of generated modules, each alone, in child processes."""
