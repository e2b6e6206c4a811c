"""Programs and their tests: which part of a completion is the program, and which tests it passes."""
