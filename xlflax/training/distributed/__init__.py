"""Jobs of several processes: detection, joining, failures and preemption."""
