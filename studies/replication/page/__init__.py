"""Result pages of the replication study: tables, figures and checks."""
