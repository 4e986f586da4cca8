"""A graph, its calls, its counters."""
