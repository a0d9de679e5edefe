"""Quality measurements reported in docs/measured/evaluation.md."""
