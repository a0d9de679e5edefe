"""Case study that trains a model in 24 languages (docs/rehearsal.md)."""
