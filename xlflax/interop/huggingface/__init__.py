"""Checkpoints in the Hugging Face format, converted both ways.

| module | holds |
| --- | --- |
| `rules` | how one tensor becomes a parameter, and back |
| `architectures` | the table of each architecture: names, classes, options |
| `config_options` | reading config.json without passing over any option |
| `tensor_files`, `torch_files` | tensors of a folder, one at a time; `.bin` files by torch |
| `plan` | which tensor goes where, after every check |
| `importing`, `weights` | the way here |
| `exporting`, `folder_writing` | the way back |
| `generation` | how an encoder-decoder's text begins and ends |
| `labelled_heads` | heads as objectives, with their labels, both ways |
| `tables`, `gin_file` | what is shown to the user, or written for runs |
| `tokenizers` | tokenizer files as an `xlflax` vocabulary, frames of texts |
| `verification` | comparison of token ids, hidden states and logits |

A converted model directory is one that `xlflax evaluate` reads and that
`InitFrom` initialises from: its checkpoint is step 0, and `model.gin` builds
the same model. What config.json said is kept in `huggingface.json`, so that
the way back restores it. `objectives.json` has what a classifier was trained
for, with its labels, so that evaluation tasks can use its head.

Heads are kept in the parameter tree beside the model, by task:

| task | parameters, under `heads/` |
| --- | --- |
| sequence classification | `sequence_classification/{dense, output}` |
| token classification | `token_classification/output` |
| question answering | `question_answering/output`: start and end |
| next sentence (BERT) | `pooler/dense`, `next_sentence/output` |
| none, but a pooler | `pooler/dense` |

Each `dense` and `output` is a `kernel` [inputs, outputs] and a `bias`;
`xlflax.models.heads.classification_heads` applies them. XLM's sequence classification has no
`dense`. The masked LM's head is part of the model.
"""
