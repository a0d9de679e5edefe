"""Several processes: cluster detection, joining, failures, preemption."""
