"""The C++, how it is built and loaded, and what it shares with Python."""
