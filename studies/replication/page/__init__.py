"""Pages of the replication study: tables, figures and checks."""
