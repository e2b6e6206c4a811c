"""Modules for `evaluate.load(trl_mentor.evaluation.module_path(name))`.

`evaluate` reads their imports as text, one module a line, copies each file elsewhere and takes its first subclass of
`EvaluationModule`: so they import `evaluate` whole, the package by absolute names, and hold one class each.
"""
