"""From labelled examples to rows of a batch, a module for each family."""
