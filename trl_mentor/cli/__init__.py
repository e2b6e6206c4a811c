"""The command line: `trl-mentor demo`, `trl-mentor grpo` and `trl-mentor hint`, one file each."""
