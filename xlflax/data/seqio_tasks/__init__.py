"""SeqIO tasks and mixtures, their readers, and the live loader."""
