"""Storage on disks and in buckets: paths, integrity, locks and staging."""
