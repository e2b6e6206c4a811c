"""Runs programs that nobody vouches for: bounded in every resource, without network, and gone when they end."""

from trl_mentor.sandbox.box import Sandbox
from trl_mentor.sandbox.launcher import Running
from trl_mentor.sandbox.records import Ending, Isolation, Limits, Result
from trl_mentor.sandbox.tiers import available

__all__ = ["Ending", "Isolation", "Limits", "Result", "Running", "Sandbox", "available"]
