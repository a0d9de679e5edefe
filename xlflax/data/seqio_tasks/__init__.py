"""SeqIO tasks and mixtures: registered, read, shown, and the live loader."""
