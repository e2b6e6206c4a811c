"""Runs programs that nobody vouches for: bounded in every resource, without network, and gone when they end."""

from trl_mentor.sandbox.box import Running, Sandbox, available
from trl_mentor.sandbox.records import Ending, Isolation, Limits, Result

__all__ = ["Ending", "Isolation", "Limits", "Result", "Running", "Sandbox", "available"]
