"""Training of xlflax models with T5X, and import of T5X checkpoints.

| module | content | requires |
| --- | --- | --- |
| `t5x_models`, `objective_model` | models of T5X with an objective | T5X |
| `logical_axes`, `clu_metrics` | parameter axes and metrics for T5X | T5X |
| `t5x_tasks` | SeqIO tasks with the language of each text | SeqIO |
| `feature_converters` | conversion of the tasks' examples to batches | SeqIO |
| `checkpoint_files` | reader of the tensors in T5X checkpoints | Orbax |
| `t5_rules` | mapping of T5's tensors to parameters | - |
| `t5x_import` | checks of a checkpoint and mapping of its tensors | - |
| `model_directory` | conversion of a checkpoint to a model directory | - |

No other package imports T5X, and the conversion of a checkpoint does not
require it. The gin files are in `gin_configs/t5x/`.
"""
