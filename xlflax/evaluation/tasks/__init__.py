"""The evaluation tasks: one module for each family."""
