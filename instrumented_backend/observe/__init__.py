"""Watches a program that uses torch.compile and keeps what it sees as records; prints nothing."""
