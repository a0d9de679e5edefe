"""Replication of claims from papers: runs, intervals, verdicts and pages."""
