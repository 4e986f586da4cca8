"""Results of real architectures' steps, to be compared."""

import torch

STEPS = 3


Results = dict[str, torch.Tensor]


def differing(ours: Results, theirs: Results) -> list[str]:
    assert ours.keys() == theirs.keys() and len(ours) >= 2 * STEPS
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]
