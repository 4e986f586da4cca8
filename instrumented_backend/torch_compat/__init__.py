"""Every private name of torch that we rely on, and what we change in torch: a room for each theme.

Each function says which torch versions its names hold for (2.11 to 2.15 unless it says less);
``tests/unit/torch_compat`` and ``tests/programs/torch_compat`` fail when one is gone. Patches are
few, named and reversible: each ``patch_*`` returns the function that undoes it.

Call sites import the room that they use (``from instrumented_backend.torch_compat import fx``). A
room imports nothing of torch but in its functions.
"""
