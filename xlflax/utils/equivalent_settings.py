"""Settings of xlflax that are equivalent to options of other libraries.

Users of Hugging Face Transformers and T5X pass the names that they know, such
as `--max_steps` or `--gin.MIXTURE_OR_TASK_NAME`. The table `SETTINGS` contains
the equivalent options, macros and gin parameters of xlflax, for the error
messages about unknown options, unused macros, unknown gin parameters and
unknown arguments of Python classes.
"""

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Collection, Mapping

_TRAINER = pathlib.Path(__file__).parents[1] / 'trainer.py'
# Macros that only the gin files for training or for fine-tuning use.
_TRAINING_MACRO = 'TRAIN_STEPS'
_FINE_TUNING_MACRO = 'TRAIN_FILES'
_GIN = '--gin.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """Options of xlflax that are equivalent to an option of another library.

  Attributes:
    train: Equivalent flags of `xlflax train`, such as '--gin.TRAIN_STEPS=N'. If
      `other` is empty, the flags that set gin bindings are also used for
      `xlflax pretrain`.
    finetune: Equivalent flags of `xlflax finetune`. If None, the flags in
      `train` are used.
    other: Equivalent flags of other commands. Flags that a command does not
      have are ignored.
    parameters: Names of equivalent gin parameters, without the names of their
      classes.
    hints: Mapping from commands, such as 'launch local', to hints that replace
      all flags.
    note: Sentences that explain the differences from the other library, for the
      error message.
  """

  train: tuple[str, ...] = ()
  finetune: tuple[str, ...] | None = None
  other: tuple[str, ...] = ()
  parameters: tuple[str, ...] = ()
  hints: Mapping[str, str] = dataclasses.field(default_factory=dict)
  note: str = ''

  def flags(self, command: str) -> tuple[str, ...]:
    """Returns the equivalent flags for a command, such as 'train'.

    The command may lack some of the returned flags.
    """
    if command == 'finetune' and self.finetune is not None:
      return self.finetune
    if command in ('train', 'finetune'):
      return self.train
    if command == 'pretrain':
      return self.other or tuple(x for x in self.train if x.startswith(_GIN))
    return self.other


_OTHER_OPTIMIZER = (
  'If the run uses another optimizer, replace AdamW with its name.'
)
_ENCODER_DECODER = (
  'For an encoder-decoder, replace EncoderConfig with EncoderDecoderConfig.'
)
_STEPS = Setting(
  train=('--gin.TRAIN_STEPS=N',),
  other=('--steps=N', '--num_steps=N'),
  parameters=('num_train_steps',),
)
_EPOCHS = Setting(
  train=('--gin.TRAIN_STEPS=N',),
  finetune=('--gin.EPOCHS=N',),
  other=('--steps=N',),
  parameters=('epochs',),
  note='The length of pretraining is a number of steps. The length of '
  'fine-tuning is a number of epochs or steps.',
)
_BATCH_SIZE = Setting(
  train=('--gin.BATCH_SIZE=N',),
  parameters=('batch_size',),
  note='The batch size is the total number of sequences per optimizer update, '
  'on all devices and in all micro-batches.',
)
_ACCUMULATION = Setting(
  train=('--gin.Trainer.gradient_accumulation_steps=N',),
  parameters=('gradient_accumulation_steps',),
  note='The batch of BATCH_SIZE sequences of an optimizer update is divided '
  'into N micro-batches. In Hugging Face Transformers, N multiplies the batch '
  'size instead.',
)
_LENGTH = Setting(
  train=('--gin.LENGTH=N',),
  other=('--max_seq_length=N', '--max_length=N'),
  parameters=('length',),
)
_LEARNING_RATE = Setting(
  train=('--gin.LEARNING_RATE=X',), parameters=('peak_value', 'learning_rate')
)
_WARMUP_STEPS = Setting(
  train=('--gin.WARMUP_STEPS=N',), parameters=('warmup_steps',)
)
_SAVE_STEPS = Setting(
  train=('--gin.CheckpointOptions.save_interval_steps=N',),
  parameters=('save_interval_steps',),
)
_EVAL_STEPS = Setting(
  train=('--gin.Evaluation.eval_interval_steps=N',),
  finetune=('--gin.EVAL_STEPS=N',),
  parameters=('eval_interval_steps',),
  note='Evaluation during pretraining requires '
  '--gin_file=evaluate/during_training.gin, and evaluation during fine-tuning '
  'requires DEV_FILES.',
)
_SCHEDULE = Setting(
  train=('--gin.SCHEDULE="@schedules.Cosine()"',),
  note='The schedules are Linear, Constant, Cosine, WSD, InverseSqrt and '
  'Piecewise.',
)
_OPTIMIZER = Setting(
  train=('--gin.OPTIMIZER="@optimizers.AdamW()"',),
  note='The optimizers are AdamW, StableAdamW, Muon, Adam, SGD and Adafactor.',
)
_BFLOAT16 = Setting(
  train=('--gin.EncoderConfig.dtype="\'bfloat16\'"',),
  finetune=("--gin.load_model.overrides=\"{'dtype': 'bfloat16'}\"",),
  parameters=('dtype',),
  note=f'The number formats are float32 and bfloat16. {_ENCODER_DECODER}',
)
_REMAT = Setting(
  train=('--gin.EncoderConfig.remat="\'full\'"',),
  finetune=("--gin.load_model.overrides=\"{'remat': 'full'}\"",),
  parameters=('remat',),
  note=_ENCODER_DECODER,
)
_SEED = Setting(
  train=('--gin.SEED=N',), other=('--seed=N',), parameters=('seed',)
)
_INIT_FROM = Setting(
  train=('--gin.INIT_FROM="\'DIR\'"',),
  finetune=('--init_from=DIR',),
  other=('--model_dir=DIR',),
  parameters=('init_from',),
  note='Convert a model of Hugging Face with `xlflax convert from-hf` first.',
)
_CHECKPOINT_PATH = dataclasses.replace(
  _INIT_FROM,
  note='Convert a checkpoint of T5X with `xlflax convert from-t5x` first.',
)
_RESUME = Setting(
  note='Remove the option. To resume a run, run the same command again with '
  'the same directory.'
)
_DO_TRAIN = Setting(
  note='Remove the option. `xlflax train` and `xlflax finetune` train, and '
  '`xlflax evaluate` evaluates.'
)
_OUTPUT_DIR = Setting(
  train=('--model_dir=DIR',),
  finetune=('--output=DIR',),
  other=('--output=DIR',),
  parameters=('model_dir',),
)
_MASK_RATIO = Setting(
  train=('--gin.MASK_RATIO=X',), finetune=(), parameters=('mask_ratio',)
)
_CACHED_TASKS = Setting(
  train=('--cache=DIR',),
  other=('--cache=DIR',),
  note='`xlflax cache` writes the token cache.',
)
_MIXTURE = Setting(
  train=('--gin.MONO="\'NAME\'"', '--gin.PARALLEL="\'NAME\'"'),
  finetune=(),
  other=('--mixture=NAME',),
  parameters=('mixture',),
)
_MODULE = Setting(
  train=('--task_module=MODULE',), other=('--task_module=MODULE',)
)
_DROPOUT = Setting(
  train=('--gin.DROPOUT=X',),
  finetune=('--gin.load_model.overrides="{\'dropout_rate\': X}"',),
  parameters=('dropout_rate',),
)
_LAUNCH_HINT = (
  'To train in several processes on this machine, run `xlflax launch local '
  '--nproc_per_node=N -- train`, followed by the options of `xlflax train`.'
)
_PROCESSES = Setting(
  hints={
    'launch local': 'Pass --nproc_per_node=N instead.',
    'launch node': 'Pass --nproc_per_node=N, the number of processes on each '
    'node, and --nnodes=N instead.',
    'launch slurm': 'Pass --ntasks_per_node=N, the number of processes on each '
    'node, and --nodes=N instead.',
    'launch kubernetes': 'Pass --nnodes=N instead. Each pod runs one process.',
  }
)
# `xlflax train` has the option --num_processes.
_PROCESSES_PER_NODE = Setting(hints={'train': _LAUNCH_HINT, **_PROCESSES.hints})
_NODES = Setting(
  hints={
    'launch local': 'To start processes on several machines, run `xlflax '
    'launch node --nnodes=N` on each of them.',
    'launch node': 'Pass --nnodes=N instead.',
    'launch slurm': 'Pass --nodes=N instead.',
    'launch kubernetes': 'Pass --nnodes=N instead.',
  }
)
_GPUS_HINT = (
  'Pass --nproc_per_node=N instead. The processes of a machine share its GPUs '
  'equally. The variable CUDA_VISIBLE_DEVICES selects the GPUs.'
)
_GPUS = Setting(
  hints={
    'train': f'{_LAUNCH_HINT} A single process uses all GPUs.',
    'launch local': _GPUS_HINT,
    'launch node': _GPUS_HINT,
    'launch slurm': 'Pass --gpus_per_node=N instead.',
    'launch kubernetes': 'Pass --gpus_per_pod=N instead.',
  }
)


def _model_size(field: str) -> Setting:
  """Returns the setting for the size of an encoder."""
  return Setting(
    train=(f'--gin.EncoderConfig.{field}=N',), finetune=(), parameters=(field,)
  )


def _adamw(field: str) -> Setting:
  """Returns the setting for a hyperparameter of AdamW."""
  return Setting(
    train=(f'--gin.AdamW.{field}=X',),
    parameters=(field,),
    note=_OTHER_OPTIMIZER,
  )


# Settings by the names of other libraries, in lower case.
SETTINGS: dict[str, Setting] = {
  # Hugging Face Transformers: TrainingArguments, example scripts and configs.
  'max_steps': _STEPS,
  'num_train_epochs': _EPOCHS,
  'per_device_train_batch_size': _BATCH_SIZE,
  'per_gpu_train_batch_size': _BATCH_SIZE,
  'train_batch_size': _BATCH_SIZE,
  'per_device_eval_batch_size': Setting(
    train=('--gin.Evaluation.batch_size=N',),
    finetune=('--eval_batch_size=N',),
    other=('--batch_size=N',),
  ),
  'gradient_accumulation_steps': _ACCUMULATION,
  'learning_rate': _LEARNING_RATE,
  'weight_decay': _adamw('weight_decay'),
  'adam_beta1': _adamw('b1'),
  'adam_beta2': _adamw('b2'),
  'adam_epsilon': _adamw('eps'),
  'beta1': _adamw('b1'),
  'beta2': _adamw('b2'),
  'max_grad_norm': _adamw('clip_norm'),
  'optim': _OPTIMIZER,
  'lr_scheduler_type': _SCHEDULE,
  'warmup_steps': _WARMUP_STEPS,
  'warmup_ratio': Setting(
    train=('--gin.WARMUP_STEPS=X',),
    finetune=('--gin.WARMUP_RATIO=X',),
    parameters=('warmup_steps',),
    note='A value below 1 is a fraction of the number of steps.',
  ),
  'max_seq_length': _LENGTH,
  'max_length': _LENGTH,
  'max_source_length': _LENGTH,
  'block_size': _LENGTH,
  'mlm_probability': _MASK_RATIO,
  'save_steps': _SAVE_STEPS,
  'save_total_limit': Setting(
    train=('--gin.CheckpointOptions.max_to_keep=N',),
    parameters=('max_to_keep',),
  ),
  'logging_steps': Setting(
    train=('--gin.Trainer.log_metrics_every=N',),
    parameters=('log_metrics_every',),
  ),
  'eval_steps': _EVAL_STEPS,
  'fp16': _BFLOAT16,
  'bf16': _BFLOAT16,
  'torch_dtype': _BFLOAT16,
  'gradient_checkpointing': _REMAT,
  'seed': _SEED,
  'data_seed': _SEED,
  'output_dir': _OUTPUT_DIR,
  'model_name_or_path': _INIT_FROM,
  'tokenizer_name': Setting(train=('--vocabulary=DIR',), finetune=()),
  'config_name': Setting(
    train=('--gin_file=models/SIZE.gin',),
    finetune=(),
    note='Run `xlflax configs list` to list the gin files of models.',
  ),
  'train_file': Setting(
    train=('--corpus=DIR',),
    finetune=("--gin.TRAIN_FILES=\"{'LANGUAGE': 'FILE'}\"",),
  ),
  'validation_file': Setting(
    finetune=("--gin.DEV_FILES=\"{'LANGUAGE': 'FILE'}\"",)
  ),
  'resume_from_checkpoint': _RESUME,
  'do_train': _DO_TRAIN,
  'do_eval': _DO_TRAIN,
  'do_predict': _DO_TRAIN,
  'hidden_size': _model_size('hidden_dim'),
  'num_hidden_layers': _model_size('num_layers'),
  'num_attention_heads': _model_size('num_heads'),
  'intermediate_size': _model_size('mlp_dim'),
  'max_position_embeddings': _model_size('max_position_embeddings'),
  'hidden_dropout_prob': _DROPOUT,
  # fairseq, and the original code of BERT and XLM.
  'mask_prob': _MASK_RATIO,
  'masked_lm_prob': _MASK_RATIO,
  'num_train_steps': _STEPS,
  'num_warmup_steps': _WARMUP_STEPS,
  'lr': _LEARNING_RATE,
  'epochs': _EPOCHS,
  'update_freq': _ACCUMULATION,
  # T5X.
  'mixture_or_task_name': _MIXTURE,
  'mixture_or_task_module': _MODULE,
  'task_feature_lengths': _LENGTH,
  'use_cached_tasks': _CACHED_TASKS,
  'initial_checkpoint_path': _CHECKPOINT_PATH,
  'dropout_rate': _DROPOUT,
  'eval_period': _EVAL_STEPS,
  'checkpoint_period': _SAVE_STEPS,
  'num_microbatches': _ACCUMULATION,
  'random_seed': _SEED,
  'num_partitions': Setting(
    train=('--gin.Partitioner.tensor=N',), parameters=('tensor',)
  ),
  # torchrun, Accelerate, DeepSpeed and Slurm.
  'nproc_per_node': _PROCESSES_PER_NODE,
  'num_process': _PROCESSES,
  'num_processes': _PROCESSES,
  'num_proc': _PROCESSES,
  'nproc': _PROCESSES_PER_NODE,
  'nprocs': _PROCESSES_PER_NODE,
  'ntasks': _PROCESSES,
  'ntasks_per_node': _PROCESSES,
  'nnodes': _NODES,
  'nodes': _NODES,
  'num_nodes': _NODES,
  'num_machines': _NODES,
  'gpus': _GPUS,
  'num_gpus': _GPUS,
  'gpus_per_node': _GPUS,
  'gpus_per_pod': _GPUS,
  # Macros without `gin.`.
  'train_steps': _STEPS,
  'batch_size': _BATCH_SIZE,
  'length': _LENGTH,
  'optimizer': _OPTIMIZER,
  'schedule': _SCHEDULE,
  'mask_ratio': _MASK_RATIO,
  'dropout': _DROPOUT,
  'init_from': _INIT_FROM,
  'mono': Setting(train=('--gin.MONO="\'NAME\'"',), finetune=()),
  'parallel': Setting(train=('--gin.PARALLEL="\'NAME\'"',), finetune=()),
}


def suggest_for_option(
  option: str, names: Collection[str], command: str
) -> str | None:
  """Returns a hint with the settings to use instead of an unknown option.

  Args:
    option: Option that the command does not have, such as '--max_steps'.
    names: Names of the command's options.
    command: Name of the command, such as 'train'.
  """
  setting = _find_setting(option.lstrip('-'))
  if setting is None:
    return None
  if setting.hints:
    return setting.hints.get(command)
  flags = [
    flag
    for flag in setting.flags(command)
    if flag.startswith(_GIN) or flag.partition('=')[0] in names
  ]
  return _format_hint(setting, flags)


def suggest_for_macro(name: str, uses: Collection[str]) -> str | None:
  """Returns a hint with the settings to use instead of a macro without effect.

  Args:
    name: Macro that the configuration does not use, such as 'MAX_STEPS'.
    uses: Macros that the configuration uses.
  """
  setting = _find_setting(name)
  if setting is None or setting.hints or _TRAINING_MACRO not in uses:
    return None
  command = 'finetune' if _FINE_TUNING_MACRO in uses else 'train'
  flags = [
    flag
    for flag in setting.flags(command)
    if not flag.startswith(_GIN)
    or (binding := flag.removeprefix(_GIN).partition('=')[0]) in uses
    or '.' in binding
  ]
  return _format_hint(setting, flags)


def suggest_parameters(name: str, names: Collection[str]) -> list[str]:
  """Returns the parameters of a class to use instead of an unknown parameter.

  Args:
    name: Parameter that a class does not have, such as 'mask_prob'.
    names: Parameters of the class.
  """
  setting = SETTINGS.get(name.lower())
  parameters = setting.parameters if setting else ()
  return [parameter for parameter in parameters if parameter in names]


def _find_setting(name: str) -> Setting | None:
  """Returns the setting for a name of another library or of the trainer."""
  name = name.lower().replace('-', '_')
  if name in SETTINGS:
    return SETTINGS[name]
  if name in trainer_fields():
    return Setting(train=(f'--gin.Trainer.{name}=VALUE',), parameters=(name,))
  return None


@functools.cache
def trainer_fields() -> frozenset[str]:
  """Reads the names of the trainer's fields from its source code."""
  for node in ast.parse(_TRAINER.read_text(encoding='utf-8')).body:
    if isinstance(node, ast.ClassDef) and node.name == 'Trainer':
      return frozenset(
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
      )
  return frozenset()


def _format_hint(setting: Setting, flags: Collection[str]) -> str | None:
  """Formats flags and the note of a setting.

  The result is None if the setting has flags, but not for this command.
  """
  if not flags and (setting.train or setting.finetune):
    return None
  sentences = [f'Pass {" or ".join(flags)} instead.'] if flags else []
  return ' '.join([*sentences, setting.note]).strip()
