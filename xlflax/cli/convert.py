"""`xlflax convert`: imports, exports, averages and merges checkpoints."""

import dataclasses
import pathlib
from typing import Literal

from xlflax.cli import options as shared_options
from xlflax.config import gin_config
from xlflax.storage import bucket_staging, paths
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class FromHfOptions:
  """Converts a Hugging Face or Sentence-Transformers model to a run directory.

  The supported models are BERT, DistilBERT, DeBERTa-v2, RoBERTa (also with
  pre-LN), XLM-R, XLM-R XL, XLM, ModernBERT, EuroBERT, mGTE, jina-embeddings-v3,
  nomic-embed-text, ESM, T5, mT5, umT5, BART, mBART, M2M-100 and NLLB-200.
  docs/huggingface.md lists their variants and heads. Tokenizers and heads are
  converted too.

  Attributes:
    path: Directory with config.json, weights and tokenizer, or name of a model
      on the Hugging Face Hub.
    output: Run directory to write.
    dry_run: Check the model and print how its tensors are mapped, without
      writing files.
    scan_layers: Store the parameters of all layers in stacked arrays.
      `--scan_layers=false` stores each layer separately.
    pad_vocab_size_multiple: Multiple to which the number of rows in embedding
      tables is rounded up.
    languages: Languages in the order of their ids, separated by commas.
      Defaults to the languages of the exported run if xlflax wrote the
      directory, to the languages in config.json for XLM, or else to those of
      common multilingual models.
    vocabulary: Directory written by `xlflax vocab`, used instead of the model's
      tokenizer.
    unused_embeddings: Treatment of embedding rows that belong to no token.
    ignore_config_keys: Unknown keys of config.json that do not change the
      model's outputs, separated by commas. Other unknown keys are rejected.
    exclude: Regular expression for the names of tensors that are not converted.
      Repeat the option for several expressions.
  """

  path: str = dataclasses.field(kw_only=False)
  output: str
  dry_run: bool = False
  scan_layers: bool = True
  pad_vocab_size_multiple: shared_options.PositiveInt = 128
  languages: shared_options.CommaSeparated = ()
  vocabulary: str | None = None
  unused_embeddings: Literal['error', 'keep'] = 'error'
  ignore_config_keys: shared_options.CommaSeparated = ()
  exclude: tuple[str, ...] = ()

  def __post_init__(self):
    shared_options.check_excludes(
      self,
      ['languages', 'unused_embeddings'],
      excluded_by='--vocabulary',
      given=self.vocabulary is not None,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToHfOptions:
  """Converts a run's checkpoint to a Hugging Face model directory.

  Writes config.json, the weights as safetensors, and the tokenizer.

  Attributes:
    model_dir: Directory of a run or of an imported model.
    output: Directory to write.
    dry_run: Check the model and print how its tensors are mapped, without
      writing files.
    step: Training step of the checkpoint. Defaults to the last checkpoint.
    architecture: Value of model_type in config.json. Defaults to the
      tokenizer's model type. If the tokenizer has none, it defaults to the
      model type of the model from which the run was initialized, or else to the
      first model type that can represent the model.
    head: Head to export, or "states" to export the encoder without a head.
      Defaults to the model's head.
    license: License for the model card, such as mit. Defaults to the license of
      the model from which the run was initialized.
    sentence_transformers: Pooling of the hidden states. If it is set, the files
      for Sentence-Transformers are also written. "mean_all" averages over all
      tokens, and "first" takes the first token, which a masked LM does not
      train as an embedding.
    onnx: Also write an encoder as onnx/model.onnx and verify its outputs with
      onnxruntime. Requires the extra `onnx`.
    source_lang: Source language of a translation model. By default, the
      exported tokenizer uses this language's special token. Requires
      --target_lang.
    target_lang: Target language of a translation model. Requires --source_lang.
    dtype: Data type of the tensors.
    max_shard_size: Maximum size of a weight file in GB (10^9 bytes).
    exclude: Regular expression for the names of parameters that are not
      converted. Repeat the option for several expressions.
  """

  model_dir: str = dataclasses.field(kw_only=False)
  output: str
  dry_run: bool = False
  step: shared_options.NonNegativeInt | None = None
  architecture: str | None = None
  head: (
    Literal[
      'states',
      'masked_lm',
      'pretraining',
      'sequence_classification',
      'token_classification',
      'question_answering',
      'seq2seq',
    ]
    | None
  ) = None
  license: str | None = None
  sentence_transformers: Literal['mean_all', 'first'] | None = None
  onnx: bool = False
  source_lang: str | None = None
  target_lang: str | None = None
  dtype: Literal['float32', 'float16', 'bfloat16'] = 'float32'
  max_shard_size: shared_options.PositiveFloat = 5.0
  exclude: tuple[str, ...] = ()

  def __post_init__(self):
    shared_options.check_requires(
      self,
      ['source_lang'],
      requires='--target_lang',
      satisfied=self.target_lang is not None,
    )
    shared_options.check_requires(
      self,
      ['target_lang'],
      requires='--source_lang',
      satisfied=self.source_lang is not None,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FromT5xOptions:
  """Converts a T5X checkpoint to a run directory.

  Reads checkpoints of T5 v1.1 and mT5, and of xlflax models that were trained
  with t5x.train. For xlflax models, pass the gin files that define the model.

  Attributes:
    checkpoint: Checkpoint directory, such as MODEL_DIR/checkpoint_1000.
    output: Run directory to write.
    vocabulary: Directory written by `xlflax vocab`. Cannot be combined with
      --tokenizer.
    tokenizer: Directory that contains T5's or mT5's SentencePiece model as
      spiece.model. 100 sentinel symbols are added to its vocabulary. Cannot be
      combined with --vocabulary.
    languages: Languages in the order of their ids, separated by commas.
      Requires --tokenizer.
    dry_run: Check the checkpoint and print how its parameters are mapped,
      without writing files.
    scan_layers: Store the parameters of all T5 layers in stacked arrays.
      `--scan_layers=false` stores each layer separately.
    activation: Activation function in T5's feed-forward layers. Defaults to
      gelu_tanh for gated layers, and to relu otherwise.
  """

  checkpoint: str = dataclasses.field(kw_only=False)
  output: str
  vocabulary: str | None = None
  tokenizer: str | None = None
  languages: shared_options.CommaSeparated = ()
  dry_run: bool = False
  scan_layers: bool = True
  activation: Literal['gelu_tanh', 'gelu', 'relu', 'silu'] | None = None
  gin: shared_options.GinOptions = shared_options.GinOptions()

  def __post_init__(self):
    _check_one_of(self, 'vocabulary', 'tokenizer')
    shared_options.check_requires(
      self,
      ['languages'],
      requires='--tokenizer',
      satisfied=self.tokenizer is not None,
    )
    shared_options.check_excludes(
      self,
      ['scan_layers', 'activation'],
      excluded_by='--gin_file',
      given=bool(self.gin.gin_file),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageOptions:
  """Averages the parameters of checkpoints from one or several runs.

  Attributes:
    model_dir: Run directory. Repeat the option for several runs, which must
      have started from the same model.
    output: Run directory to write.
    last: Number of checkpoints to average, counted from the last one of each
      run. Cannot be combined with --checkpoint_steps.
    checkpoint_steps: Training steps of the checkpoints to average, separated by
      commas. Cannot be combined with --last.
  """

  model_dir: tuple[str, ...]
  output: str
  last: shared_options.PositiveInt | None = None
  checkpoint_steps: shared_options.Steps | None = None

  def __post_init__(self):
    _check_one_of(self, 'last', 'checkpoint_steps')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToPeftOptions:
  """Converts a LoRA adapter of a run to a PEFT folder.

  Writes adapter_config.json, and the adapter and the head of its task as
  adapter_model.safetensors.

  Attributes:
    model_dir: Directory of a run with adapters.
    output: Directory to write.
    adapter: Name of the adapter. Required if the run has several adapters.
    step: Training step of the checkpoint. Defaults to the last checkpoint.
    architecture: Value of model_type in the config.json of the base. Defaults
      to the same architecture as `xlflax convert to-hf`.
    head: Head to export, or "states" to export the adapter of an encoder
      without a head. Defaults to the model's head.
    base_model: Path or name of the Hugging Face model to which the adapter
      belongs. Defaults to the name of the model from which the run was
      initialized.
  """

  model_dir: str = dataclasses.field(kw_only=False)
  output: str
  adapter: str | None = None
  step: shared_options.NonNegativeInt | None = None
  architecture: str | None = None
  head: (
    Literal[
      'states',
      'masked_lm',
      'sequence_classification',
      'token_classification',
      'question_answering',
    ]
    | None
  ) = None
  base_model: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FromPeftOptions:
  """Converts a PEFT folder with a LoRA adapter to a run directory.

  Attributes:
    path: Directory with adapter_config.json and adapter_model.safetensors.
    model_dir: Directory of the run to which the adapter is added, such as a
      model that `xlflax convert from-hf` has written.
    output: Run directory to write.
    adapter: Name of the adapter in the written run.
    step: Training step of the checkpoint of MODEL_DIR to which the adapter is
      added. Defaults to the last checkpoint.
  """

  path: str = dataclasses.field(kw_only=False)
  model_dir: str
  output: str
  adapter: str = 'default'
  step: shared_options.NonNegativeInt | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeAdaptersOptions:
  """Merges LoRA adapters into the parameters of their base model.

  Attributes:
    model_dir: Directory of a run with adapters.
    output: Run directory to write.
    adapter: Name of an adapter to merge. Repeat the option for several
      adapters. Defaults to all LoRA adapters.
    step: Training step of the checkpoint. Defaults to the last checkpoint.
  """

  model_dir: str = dataclasses.field(kw_only=False)
  output: str
  adapter: tuple[str, ...] = ()
  step: shared_options.NonNegativeInt | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplaceAdapterOptions:
  """Replaces an adapter with an adapter from a run of the same base model.

  For example, replaces the language adapter below a task adapter, to transfer
  the task to another language.

  Attributes:
    model_dir: Directory of the run whose adapter is replaced.
    source: Directory of the run that provides the adapter.
    output: Run directory to write.
    adapter: Name of the adapter that is replaced.
    source_adapter: Name of the adapter in the run that provides it. Defaults to
      the name of the adapter that is replaced.
    step: Training step of the checkpoint. Defaults to the last checkpoint.
    source_step: Training step of the checkpoint that provides the adapter.
      Defaults to the last checkpoint.
  """

  model_dir: str = dataclasses.field(kw_only=False)
  source: str
  output: str
  adapter: str
  source_adapter: str | None = None
  step: shared_options.NonNegativeInt | None = None
  source_step: shared_options.NonNegativeInt | None = None


EXAMPLES = r"""
Convert a Hugging Face model, after printing the mapping of tensors:
  xlflax convert from-hf models/xlm-roberta-base --output=runs/xlmr --dry_run
  xlflax convert from-hf models/xlm-roberta-base --output=runs/xlmr

Continue training the converted model, or evaluate it:
  xlflax train ... --gin.INIT_FROM="'runs/xlmr'"
  xlflax evaluate --model_dir=runs/xlmr --tasks=retrieval --corpus=corpus

Convert a run to a Hugging Face directory:
  xlflax convert to-hf runs/xlmr --output=models/mine

Convert a T5X checkpoint of mT5, or of an xlflax model trained with t5x.train:
  xlflax convert from-t5x mt5/checkpoint_1000000 --tokenizer=mt5 \
      --output=runs/mt5
  xlflax convert from-t5x t5x_runs/mlm/checkpoint_100000 \
      --gin_file=models/small.gin --vocabulary=vocabulary --output=runs/mlm

Average the last ten checkpoints of a run:
  xlflax convert average --model_dir=runs/mt --last=10 --output=runs/mt-mean
  xlflax evaluate --model_dir=runs/mt-mean

Convert a LoRA adapter to the format of PEFT, and one of PEFT to a run:
  xlflax convert to-peft runs/lora --output=models/lora
  xlflax convert from-peft models/lora --model_dir=runs/xlmr \
      --output=runs/xlmr-lora

Merge LoRA adapters into the base, to export an ordinary model:
  xlflax convert merge-adapters runs/lora --output=runs/merged
  xlflax convert to-hf runs/merged --output=models/merged

Replace the language adapter below a task adapter:
  xlflax convert replace-adapter runs/task --adapter=language \
      --source=runs/mlm_fr --output=runs/task_fr
"""


def from_hf(options: FromHfOptions) -> None:
  """Converts a Hugging Face model, or prints how its tensors are mapped."""
  from xlflax.interop.huggingface import huggingface_import, mapping_tables

  checked = huggingface_import.check_import(
    options.path,
    scan_layers=options.scan_layers,
    pad_vocab_size_multiple=options.pad_vocab_size_multiple,
    languages=options.languages or None,
    vocabulary=options.vocabulary,
    unused_rows=options.unused_embeddings,
    drop=options.exclude,
    ignored_options=options.ignore_config_keys,
  )
  if options.dry_run:
    print(mapping_tables.format_import_table(checked))
    return
  directory = huggingface_import.convert_import(checked, options.output)
  for name, reason in checked.plan.skipped.items():
    print(f'not converted: {name} ({reason})')
  print(f'{len(checked.plan.assignments)} tensors -> {directory}')


def to_hf(options: ToHfOptions) -> None:
  """Converts a run's checkpoint, or prints how its tensors are mapped."""
  from xlflax.evaluation import checkpoint_selection
  from xlflax.interop.huggingface import (
    folder_writer,
    huggingface_export,
    mapping_tables,
  )
  from xlflax.interop.huggingface.cards import card_metadata

  card_metadata.check_license(options.license)
  languages = None
  if options.source_lang is not None and options.target_lang is not None:
    languages = (options.source_lang, options.target_lang)
  checked = huggingface_export.check_export(
    options.model_dir,
    step=options.step,
    model_type=options.architecture,
    task=options.head,
    drop=options.exclude,
    dtype=options.dtype,
    pooling=options.sentence_transformers,
    direction=languages,
  )
  if options.dry_run:
    print(mapping_tables.format_export_table(checked))
    return
  with bucket_staging.stage_output(options.output, new=True) as folder:
    notes = folder_writer.write_folder(
      checked,
      folder,
      max_shard_bytes=int(options.max_shard_size * 1e9),
      license=options.license,
      onnx=options.onnx,
    )
  for name, reason in checked.left_out.items():
    print(f'not converted: {name} ({reason})')
  if options.step is None:
    notes = [
      *notes,
      *checkpoint_selection.describe_selection(checked.run, checked.step),
    ]
  for note in notes:
    print(f'note: {note}')
  architecture = checked.options['architectures'][0]
  print(f'{architecture}, step {checked.step} -> {options.output}')


def from_t5x(options: FromT5xOptions) -> None:
  """Converts a T5X checkpoint, or prints how its parameters are mapped."""
  from xlflax.interop.t5x import model_directory, t5x_import

  checked = t5x_import.check_t5x_import(
    options.checkpoint,
    vocabulary=_read_vocabulary(options),
    model=_build_model(options.gin),
    scan_layers=options.scan_layers,
    activation=options.activation,
  )
  if options.dry_run:
    print(t5x_import.t5x_mapping_lines(checked))
    return
  directory = model_directory.convert_t5x_checkpoint(checked, options.output)
  print(f'{len(checked.sources)} parameters -> {directory}')


def average(options: AverageOptions) -> None:
  """Writes a run whose parameters are the average of the checkpoints."""
  from xlflax.training.initialization import averaging

  steps_by_run: dict[str | pathlib.Path, list[int]] = {
    directory: averaging.last_steps(directory, options.last)
    if options.last is not None
    else list(options.checkpoint_steps or ())
    for directory in options.model_dir
  }
  averaging.average_checkpoints(steps_by_run, options.output)
  for directory, steps in steps_by_run.items():
    listed = ', '.join(map(str, sorted(set(steps))))
    print(f'{directory}, steps {listed} -> {options.output}')


def to_peft(options: ToPeftOptions) -> None:
  """Writes a PEFT folder."""
  from xlflax.interop.huggingface import peft_adapters

  with bucket_staging.stage_output(options.output, new=True) as folder:
    adapter = peft_adapters.export_adapter(
      options.model_dir,
      folder,
      name=options.adapter,
      step=options.step,
      model_type=options.architecture,
      task=options.head,
      base_model=options.base_model,
    )
  print(f'{adapter.name}, rank {adapter.rank} -> {options.output}')


def from_peft(options: FromPeftOptions) -> None:
  """Imports the adapter from a PEFT folder into a new run directory."""
  from xlflax.interop.huggingface import peft_adapters

  adapter = peft_adapters.import_adapter(
    options.path,
    options.model_dir,
    options.output,
    name=options.adapter,
    step=options.step,
  )
  modules = ', '.join(adapter.target_modules)
  print(f'{adapter.name}, rank {adapter.rank}, {modules} -> {options.output}')


def merge_adapters(options: MergeAdaptersOptions) -> None:
  """Writes a run whose LoRA adapters are merged into the base model."""
  from xlflax.training.initialization import adapter_merging

  names = adapter_merging.merge_adapters(
    options.model_dir, options.output, names=options.adapter, step=options.step
  )
  print(f'{options.model_dir}, {", ".join(names)} -> {options.output}')


def replace_adapter(options: ReplaceAdapterOptions) -> None:
  """Writes a copy of a run in which one adapter comes from another run."""
  from xlflax.training.initialization import adapter_merging

  adapter_merging.replace_adapter(
    options.model_dir,
    options.source,
    options.output,
    name=options.adapter,
    source_name=options.source_adapter,
    step=options.step,
    source_step=options.source_step,
  )
  print(f'{options.source}, {options.adapter} -> {options.output}')


SUBCOMMANDS = {
  'from-hf': from_hf,
  'to-hf': to_hf,
  'from-t5x': from_t5x,
  'average': average,
  'to-peft': to_peft,
  'from-peft': from_peft,
  'merge-adapters': merge_adapters,
  'replace-adapter': replace_adapter,
}


def _check_one_of(options, *names: str) -> None:
  """Checks that exactly one of several options is given.

  Raises:
    ConfigError: If no option or more than one option is given.
  """
  given_options = [
    f'--{name}' for name in names if getattr(options, name) is not None
  ]
  if len(given_options) != 1:
    flags = [f'--{name}' for name in names]
    raise errors.ConfigError(
      f'Exactly one of {" and ".join(flags)} is required',
      got=' and '.join(given_options) or None,
      fix=f'Pass either {" or ".join(flags)}.',
    )


def _build_model(gin: shared_options.GinOptions):
  """Returns the model defined by gin files, or None without gin files."""
  if gin.gin_file:
    gin_config.warn_of_repeated_bindings(gin.gin_bindings)
    configuration = gin_config.load_gin_files(
      gin.gin_file, gin.gin_bindings, gin.gin_search_paths
    )
    model = configuration.macro('MODEL')
    gin_config.check_bindings([configuration])
    return model
  if gin.gin_bindings:
    raise errors.ConfigError(
      'Gin bindings require --gin_file',
      got=', '.join(gin.gin_bindings),
      fix='Add --gin_file=models/SIZE.gin.',
    )
  return None


def _read_vocabulary(options: FromT5xOptions):
  """Returns the vocabulary, converting T5's or mT5's tokenizer if necessary."""
  if options.vocabulary is not None:
    from xlflax.data.tokenizers import base_vocabulary

    return base_vocabulary.Vocabulary.load(options.vocabulary)
  from xlflax.interop.huggingface.tokenizers import (
    checkpoint_languages,
    tokenizer_reader,
  )

  assert options.tokenizer is not None  # FromT5xOptions requires one of them.
  return tokenizer_reader.read_tokenizer(
    paths.to_local_path(options.tokenizer, where='--tokenizer'),
    model_type='mt5',
    size=None,
    languages=options.languages or checkpoint_languages.DEFAULT,
  )
