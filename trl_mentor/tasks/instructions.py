"""What a prompt says about the form of the answer, so that a verifier finds it."""

from __future__ import annotations

MATH = "Reason step by step, and put the final answer into \\boxed{}."

PROGRAM = (
    "Write a complete Python program that reads the input from standard input and prints the output to standard "
    "output. If starter code is given, complete that instead and keep its names and parameters; it will be called. "
    "Put the whole program into one block that starts with ```python and ends with ```."
)

FUNCTION = (
    "Write the whole Python program, with its imports and under the names that are given. "
    "Put it into one block that starts with ```python and ends with ```."
)

CHOICE = "Reason step by step, and put the letter of the right option into \\boxed{}."
