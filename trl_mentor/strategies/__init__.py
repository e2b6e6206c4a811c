"""Strategies: one file per method."""
