"""Replication of claims from papers, with training runs and result pages."""
