"""The code that was generated for a graph."""
