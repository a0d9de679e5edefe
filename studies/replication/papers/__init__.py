"""Conditions and claims for each paper."""
