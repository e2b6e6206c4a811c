"""Evaluation without hints: generate, judge, keep every completion, and say how sure the figures are."""
