"""Training steps of full-size models in xlflax and Hugging Face, on one GPU.

  python -m benchmarks.training_step --model xlmr-base
  python -m benchmarks.training_step --model xlmr-large --batch 32
  python -m benchmarks.training_step --model mt5-base --variants x/as_is
  python -m benchmarks.training_step --model mbert-tlm --tiny   # on any CPU

Batches are synthetic, so neither text nor TensorFlow is required. The variants
`x/…` are the steps that `xlflax benchmark` times for the gin files in `MODELS`,
in bf16, with the attention backend that `attention_backend='auto'` selects.
cuDNN attention does not support attention dropout, so one variant disables
dropout. The variants `torch/…` are the baselines, with autocast to bf16, SDPA
and fused AdamW: without further changes (`as_is`), with `torch.compile`
(`compiled`), and with `torch.compile` and a head that, as in xlflax, receives
only the masked positions (`gathered`). For both libraries, MFU is based on the
model FLOPs in xlflax's forward and backward pass.
"""

import dataclasses
import json
import pathlib
import tempfile

from benchmarks import measure

VARIANTS = (
  'x/as_is',
  'x/no_attention_dropout',
  'x/chunked',
  'torch/as_is',
  'torch/compiled',
  'torch/gathered',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
  """A published model and the batches on which it is trained.

  Attributes:
    gin_files: Gin files that configure the objective and the model size.
    bindings: Additional gin bindings.
    config: Configuration class whose size fields `--tiny` reduces.
    vocabulary: Vocabulary size.
    languages: Number of languages in the vocabulary.
    batch: Sequences per batch.
    length: Tokens per sequence.
    baseline: Architecture in `baselines.pretraining`: 'xlmr', 'bert' or 'mt5'. If
      None, there is no baseline.
    objective: Name of the objective for which the variant `x/chunked` sets
      `chunk_size`.
  """

  gin_files: tuple[str, ...]
  bindings: tuple[str, ...] = ()
  config: str = 'EncoderConfig'
  vocabulary: int = 250_002
  languages: int = 100
  batch: int = 64
  length: int = 512
  baseline: str | None = None
  objective: str = 'MaskedLM'


def _select_dataset(dataset: str, entry: str) -> tuple[str, ...]:
  """Returns bindings that select a dataset and an objective of a gin file."""
  return (
    f'trainer.Trainer.datasets=[@{dataset}/dataset_config.DatasetConfig()]',
    f'objective_mixture.ObjectiveMixture.entries=[@{entry}/objective_mixture.WeightedObjective()]',
  )


MODELS = {
  'xlmr-base': Model(
    gin_files=('pretrain/mlm.gin', 'models/base.gin'), baseline='xlmr'
  ),
  'xlmr-large': Model(
    gin_files=('pretrain/mlm.gin', 'models/large.gin'),
    baseline='xlmr',
    batch=32,
  ),
  'mbert-tlm': Model(
    gin_files=('pretrain/mlm_tlm.gin', 'models/base.gin'),
    bindings=_select_dataset('pairs', 'tlm'),
    vocabulary=119_547,
    languages=104,
    batch=256,
    length=128,
    baseline='bert',
    objective='TranslationLM',
  ),
  'veco-base': Model(
    gin_files=('pretrain/veco.gin', 'models/base.gin'),
    bindings=(
      *_select_dataset('adjacent', 'ca_mono'),
      'objective_mixture.ObjectiveMixture.schedule=(0,)',
    ),
    languages=50,
    batch=32,
    objective='CrossAttentionMLM',
  ),
  'mt5-base': Model(
    gin_files=('pretrain/span_corruption.gin', 'models/mt5_base.gin'),
    config='EncoderDecoderConfig',
    vocabulary=250_112,
    batch=32,
    length=570,
    baseline='mt5',
    objective='SpanCorruption',
  ),
}
_TINY_SIZES = {
  'EncoderConfig': dict(
    num_layers=1,
    hidden_dim=16,
    mlp_dim=32,
    num_heads=2,
    max_position_embeddings=64,
  ),
  'EncoderDecoderConfig': dict(
    num_encoder_layers=1,
    num_decoder_layers=1,
    hidden_dim=16,
    mlp_dim=32,
    num_heads=2,
    head_dim=8,
  ),
}


def make_tiny(model: Model) -> Model:
  """Returns a copy of the model with tiny sizes, for tests."""
  sizes = tuple(
    f'{model.config}.{name}={value}'
    for name, value in _TINY_SIZES[model.config].items()
  )
  return dataclasses.replace(
    model,
    vocabulary=400,
    languages=2,
    batch=8,
    length=32,
    bindings=model.bindings + sizes,
  )


def make_benchmark_flags(
  model: Model, variant: str, *, calls: int
) -> list[str]:
  """Returns the `xlflax benchmark` flags for a variant such as `x/chunked`.

  Args:
    model: Model to benchmark.
    variant: Variant to measure, one of `VARIANTS`.
    calls: Number of timed steps.
  """
  prefix = 'PAIR_' if 'pretrain/mlm_tlm.gin' in model.gin_files else ''
  bindings = [
    f'{prefix}LENGTH={model.length}',
    f'{prefix}BATCH_SIZE={model.batch}',
    f"{model.config}.dtype='bfloat16'",
    *model.bindings,
  ]
  if variant == 'x/no_attention_dropout':
    bindings.append(f'{model.config}.attention_dropout_rate=0.0')
  if variant == 'x/chunked':
    bindings.append(f'{model.objective}.chunk_size=32768')
  return [
    *(f'--gin_file={name}' for name in model.gin_files),
    f'--vocabulary_size={model.vocabulary}',
    f'--num_languages={model.languages}',
    f'--num_steps={calls}',
    *(f'--gin.{binding}' for binding in bindings),
  ]


def list_variants(name: str) -> tuple[str, ...]:
  """Returns the names of the training step variants that a model supports."""
  baseline = MODELS[name].baseline
  excluded_prefix = {None: 'torch/', 'mt5': 'torch/gathered'}.get(baseline, '-')
  return tuple(
    variant for variant in VARIANTS if not variant.startswith(excluded_prefix)
  )


def measure_variant(name: str, variant: str, calls: int, **overrides) -> dict:
  """Times the training steps of xlflax or Hugging Face in this process.

  Args:
    name: Name of the model, a key of `MODELS`.
    variant: Variant to measure, one of `VARIANTS`.
    calls: Number of timed steps.
    **overrides: 'batch', to change the batch size, and 'tiny'.

  Returns:
    The seconds per step, tokens/s, FLOPs, MFU, peak memory and device.

  Raises:
    RuntimeError: If `xlflax benchmark` fails.
  """
  model = MODELS[name]
  if overrides.get('tiny'):
    model = make_tiny(model)
  if overrides.get('batch'):
    model = dataclasses.replace(model, batch=overrides['batch'])
  if variant.startswith('torch/'):
    from benchmarks.baselines import pretraining

    return pretraining.measure_variant(model, variant, calls=calls)
  from xlflax import cli

  with tempfile.TemporaryDirectory() as folder:
    output = pathlib.Path(folder) / 'figures.json'
    exit_status = cli.main(
      [
        'benchmark',
        *make_benchmark_flags(model, variant, calls=calls),
        f'--output_file={output}',
        '--compilation_cache=',
      ]
    )
    if exit_status:
      raise RuntimeError(
        f'`xlflax benchmark` failed with exit status {exit_status}.'
      )
    figures = json.loads(output.read_text())
  return {
    'seconds': figures['seconds_per_step']['median'],
    'tokens_per_second': figures['tokens_per_second'],
    'flops': figures['model_flops_per_step'],
    'mfu': figures['mfu'],
    'peak_bytes': figures['peak_memory_bytes'],
    'first_seconds': figures['compile_seconds'],
    'device': figures['device'],
  }


def compare_variants(
  name: str, variants, *, calls: int, **overrides
) -> dict[str, dict]:
  """Measures each training step in its own process, to isolate peak memory."""
  flags = [
    f'--{key}' if value is True else f'--{key}={value}'
    for key, value in overrides.items()
    if value
  ]
  return {
    variant: measure.run_module(
      'benchmarks.training_step',
      '--model',
      name,
      '--run_variant',
      variant,
      '--calls',
      str(calls),
      *flags,
    )
    for variant in variants
  }


def format_table(results: dict[str, dict]) -> str:
  """Formats measurements of training steps as a Markdown table.

  The baselines' MFU is computed from the FLOPs that xlflax counts.
  """
  xlflax_figures = next(
    (candidate for name, candidate in results.items() if name.startswith('x/')),
    None,
  )
  lines = [
    '| variant | tokens/s | ms/step | MFU | peak GB | first step s |',
    '| --- ' * 6 + '|',
  ]
  for variant, figures in results.items():
    mfu = figures['mfu']
    if mfu is None and xlflax_figures and xlflax_figures['mfu'] is not None:
      mfu = (
        xlflax_figures['mfu'] * xlflax_figures['seconds'] / figures['seconds']
      )
    lines.append(
      f'| {variant} | {figures["tokens_per_second"]:,.0f} | '
      f'{1e3 * figures["seconds"]:.1f} | '
      f'{"-" if mfu is None else f"{mfu:.3f}"} | '
      f'{figures["peak_bytes"] / 1e9:.2f} | '
      f'{figures["first_seconds"]:.1f} |'
    )
  return '\n'.join(lines)
