"""Fine-tuning objectives, which train supervised heads on pretrained models.

| module | content |
| --- | --- |
| `finetuning_objective` | base class with the features that heads read |
| `head_settings` | settings that are common to all heads |
| `classification_objective` | base class of heads with named classes |
| `sequence_classification` | a class for each sequence |
| `sequence_regression` | a number for each sequence |
| `token_classification` | a label for each word |
| `multiple_choice` | the correct one of several choices |
| `question_answering` | the span of an answer |
| `dependency_parsing` | a tree over the words of a sentence |
| `reranking` | a score for each document of a query |
| `retrieval_contrastive` | sentence vectors for retrieval |
"""
