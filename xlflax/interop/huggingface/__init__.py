"""Conversion of models from and to the Hugging Face format.

| module | content |
| --- | --- |
| `architectures` | names, classes and options of each architecture |
| `architectures.tensor_rules` | rules that map tensors to parameters |
| `architectures.config_options` | reader of the options in config.json |
| `tensors` | readers of weight files, one tensor at a time |
| `tensor_mapping` | validated assignment of tensors to parameters |
| `huggingface_import` | import |
| `huggingface_export`, `folder_writer` | export |
| `generation_config` | text generation with encoder-decoders |
| `labeled_heads` | classification heads and labels as objectives |
| `mapping_tables`, `gin_file` | output for the user, gin files for runs |
| `tokenizers` | conversion of tokenizer files to a vocabulary |
| `verification` | comparison of token ids, hidden states and logits |

`xlflax evaluate` reads a converted model directory, and `InitFromCheckpoint`
initializes parameters from it. Its checkpoint is step 0, and `model.gin` builds
the same model. The content of config.json is stored in `huggingface.json`, so
that an export restores it. `objectives.json` describes the task of a classifier
and its labels, so that evaluation tasks can use its head.

The parameters of heads are stored next to the model in the parameter tree, by
task:

| task | parameters, under `heads/` |
| --- | --- |
| sequence classification | `sequence_classification/{dense, output}` |
| token classification | `token_classification/output` |
| question answering | `question_answering/output`: start and end |
| next sentence (BERT) | `pooler/dense`, `next_sentence/output` |
| none, but a pooler | `pooler/dense` |

Each `dense` and `output` has a `kernel` of shape [inputs, outputs] and a
`bias`. `xlflax.models.heads.classification_heads` applies them. XLM's sequence
classification has no `dense`. The masked LM's head is part of the model.
"""
