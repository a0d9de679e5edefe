"""Case study in 24 languages (docs/rehearsal.md)."""
