"""Data sets and benchmarks as records, and `load_task`, which turns one into rows for TRL."""
