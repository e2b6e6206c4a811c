"""Verifiable rewards with the signature of TRL: mathematics, programs, options and the form of an answer."""
