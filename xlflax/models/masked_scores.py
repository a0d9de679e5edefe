"""The score of whatever cannot be chosen.

Attention to masked positions, logits of entries beyond the vocabulary, arcs
that no tree has and negatives that do not count all get this score instead of
-inf: their probability is exactly 0 in float32, and gradients stay finite.
"""

MASKED_SCORE = -1e9
