"""Case study that trains an encoder in 24 languages (docs/rehearsal.md)."""
