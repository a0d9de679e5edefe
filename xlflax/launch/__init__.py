"""Starting jobs of several processes: here, or on a cluster."""
