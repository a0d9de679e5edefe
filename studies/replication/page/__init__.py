"""The page of claims: tables, figures, controls."""
