"""Backends: one file per kind of mentor endpoint."""
