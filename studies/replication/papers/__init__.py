"""Conditions and claims of each paper."""
