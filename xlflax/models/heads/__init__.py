"""Classification heads, parsing heads, and Transformer layers for heads."""
