"""Case study that trains an encoder in 24 languages (docs/case_study.md)."""
