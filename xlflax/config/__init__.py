"""From gin files, flags and bindings to objects; and what is wrong."""
