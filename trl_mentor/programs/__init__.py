"""Programs that a policy writes: read from its completions, run in the sandbox, and judged outside of it."""
