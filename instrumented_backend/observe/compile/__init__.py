"""What torch says while it compiles."""
