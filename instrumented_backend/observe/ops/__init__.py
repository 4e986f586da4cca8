"""Eager ops against captured ones."""
