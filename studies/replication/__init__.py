"""Replication of the claims of papers: runs, intervals, verdicts, pages."""
