"""Fine-tuning: supervised heads on a pretrained encoder.

| module | holds |
| --- | --- |
| `base` | the features that every head reads, and settings that all share |
| `head_settings` | the choices that every head has |
| `sequence_classification` | a class for a row |
| `sequence_regression` | a number for a row |
| `token_classification` | a label for each word |
| `question_answering` | the answer's span |
| `dependency_parsing` | a tree over the words |
"""
