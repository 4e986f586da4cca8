"""Every private name of torch that we rely on, and what we change in torch: a room for each theme.

``NAMES`` of each room lists its private names by the versions of torch that have them; a test
compares it with the room's code and with the torch that is installed. Patches are few, named and
reversible: each ``patch_*`` returns the function that undoes it.

Call sites import the room that they use (``from instrumented_backend.torch_compat import fx``). No
room imports Dynamo or Inductor before one of its functions is called. `hooks`, `inductor_metrics`
and `machine` import nothing of torch until then: commands use them that do without torch.
"""
