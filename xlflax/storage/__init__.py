"""Paths on disks and in buckets, integrity checks, locks and staging of files."""
