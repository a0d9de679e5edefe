"""T5X as an engine for xlflax's models and objectives, and its checkpoints.

| module | holds | needs |
| --- | --- | --- |
| `models`, `objective_model` | T5X models made of a module and an objective |
  T5X |
| `axes`, `metrics` | parameters' axes and metrics in T5X's terms | T5X |
| `tasks` | SeqIO tasks that tell each text's language | SeqIO |
| `feature_converters` | examples of these tasks to batches | SeqIO |
| `checkpoint_files` | reading the tensors of T5X's checkpoints | Orbax |
| `t5_rules` | which of T5's tensors is which parameter | - |
| `importing` | what becomes what, after every check | - |
| `model_directory` | reading it, and writing a model directory | - |

Nothing outside this package imports T5X, and converting a checkpoint does not
need it. The gin files are in `gin_configs/t5x/`.
"""
