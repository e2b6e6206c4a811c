"""Runs programs that nobody vouches for: bounded in every resource, without network, and gone when they end."""
