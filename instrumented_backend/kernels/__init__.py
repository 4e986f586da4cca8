"""Reads the code that Inductor generated; never runs it."""
