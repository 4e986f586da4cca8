"""Programs whose truth is known: `truth.py` runs them and compares what the report says."""
