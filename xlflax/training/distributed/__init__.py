"""Multi-process jobs: detection, joining, failures and preemption."""
