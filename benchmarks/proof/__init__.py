"""What `overhead.py` and `accuracy.py` measure, a module for each subject.

`figures.py` has what a measurement gives, `child.py` runs one in a process of its own.
"""
