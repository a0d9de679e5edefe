"""Several processes: cluster, rendezvous, failure detection, pre-emption."""
