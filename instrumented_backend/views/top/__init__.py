"""The live view of programs that run: a screen for a terminal, lines for anything else."""
