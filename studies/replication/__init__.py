"""Replication of published results on cross-lingual models at small scale."""
