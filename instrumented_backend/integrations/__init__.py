"""What puts our figures where a training's other figures go: one module for each framework.

Each imports its framework, and none is imported by anything else of ours.
"""
