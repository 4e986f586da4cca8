"""Reads profiles and traces."""
