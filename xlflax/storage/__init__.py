"""Access to disks and buckets, with integrity checks, locks and staging."""
