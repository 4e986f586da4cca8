"""A program tried with one change at a time, in processes of its own; no torch on our side.

`course` decides what runs next, `runs` runs it, `child` is what a run does inside of the program.
"""
