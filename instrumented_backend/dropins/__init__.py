"""PyTorch's names, with figures that are right."""
