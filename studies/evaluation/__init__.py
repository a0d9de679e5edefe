"""Quality measurements of docs/measured/evaluation.md."""
