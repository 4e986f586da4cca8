"""Draws records: text, CSV, JSON. Imports no torch and looks at nothing but the report."""
