"""Result pages of the replication study, with tables, figures and checks."""
