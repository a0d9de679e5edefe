"""Storage on disks and in buckets: paths, integrity checks, locks and staging."""
