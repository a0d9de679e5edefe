"""SeqIO tasks and mixtures over public corpora."""
