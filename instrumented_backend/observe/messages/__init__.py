"""Torch's wording and stacks, to values."""
