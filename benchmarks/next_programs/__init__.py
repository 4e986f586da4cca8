"""Programs with a known best change, for `next_steps.py`: `catalogue.py` has them all."""
