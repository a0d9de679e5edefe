"""Compiles training steps for GPUs and TPUs that are not present.

  python -m benchmarks.compile_targets WORK            # all cases, as a table
  python -m benchmarks.compile_targets WORK --cases xlmr-base \\
      --devices gpu:H200:64
  python -m benchmarks.compile_targets WORK --check    # compare with the record
  python -m benchmarks.compile_targets WORK --record   # write the record
  python -m benchmarks.compile_targets WORK --bounds --recorded  # no compilation
  python -m benchmarks.compile_targets WORK --counts --num_layers 2 \\
      --devices gpu:H200:1   # kernels, bytes and unaligned matmuls
  python -m benchmarks.compile_targets WORK --estimates --cases mt5-base \\
      --devices gpu:H200:1   # dry-run estimates, without a compiler

Requires the extras `plan-gpu` and `plan-tpu`. Each case runs `python -m
benchmarks.compiled.count_step` in its own process and results in a lower bound
for the step time. The result is stored in WORK, so that an interrupted run can
be resumed. --check fails if a step

- does not compile,
- requires more memory than is recorded or than a device has,
- has an MFU bound of less than 98 % of the recorded bound,
- all-reduces more than 100 MB at once,
- computes a matmul as a loop over partial sums, or has matmul operands whose
  rows are not aligned,
- contains kernels whose instructions could not be counted.

Steps without a record are reported. --page writes the table between markers in
a page. --recorded formats the recorded measurements instead of compiling.

--num_layers and --binding change the compiled models. The names of the changed
cases include the changes, and the record does not include them.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

from benchmarks import pretraining, scaling
from benchmarks.compiled import findings, instructions
from xlflax.models import encoder, encoder_config
from xlflax.training.checkpointing import run_directory
from xlflax.training.devices import machine_topology

RECORD = pathlib.Path(__file__).with_suffix('.json')
GIB = 2**30
# Relative deviations from the recorded values that a check tolerates.
MAX_MFU_LOSS = 0.02
MAX_MEMORY_INCREASE = 0.02
_FAULT_WARNINGS = (instructions.UNCOUNTED, findings.MISALIGNED)


@dataclasses.dataclass(frozen=True)
class Case:
  """A training step and the devices for which it is compiled.

  Attributes:
    name: Name of the case in the tables.
    flags: Flags for `count_step`, except those for devices and batch sizes.
    batches: Map from the gin macro of a batch size to the number of sequences
      per device.
    table_devices: Devices for which the step is compiled with `--bounds`.
    checked_devices: Devices for which the step is compiled without `--bounds`.
    teacher: Configuration of the teacher for distillation. If None, the
      objective has no teacher.
  """

  name: str
  flags: tuple[str, ...]
  batches: dict[str, int]
  table_devices: tuple[str, ...]
  checked_devices: tuple[str, ...]
  teacher: encoder_config.EncoderConfig | None = None


_ONE_GPU, _EIGHT_GPUS, _MANY_GPUS = 'gpu:H200:1', 'gpu:H200:8', 'gpu:H200:64'
_TPUS = ('tpu:v5p:8', 'tpu:v6e:8')
DEVICES = (_ONE_GPU, _EIGHT_GPUS, *_TPUS)
_PAPERS = (
  *('ecs/default', 'ppa/2m', 'metaxlm/xlm', 'veco/small_ca_mlm_tlm'),
  'veco/wmt14_en_de_random',
)
_STEPS = '--gin.TRAIN_STEPS=100000'
_TABLE_DEVICES = {
  'xlmr-base': (
    *(_ONE_GPU, 'gpu:B200:1', _EIGHT_GPUS, _MANY_GPUS),
    *(*_TPUS, 'tpu:v7:8', 'tpu:v5p:64'),
  ),
  'mt5-base': (_EIGHT_GPUS, _MANY_GPUS),
}


def _make_model_case(name: str, model: pretraining.Model) -> Case:
  """Returns the case for a model in `benchmarks.pretraining`."""
  flags = [
    flag
    for flag in pretraining.make_benchmark_flags(model, 'x/as_is', calls=1)
    if not flag.startswith('--num_steps=') and 'BATCH_SIZE=' not in flag
  ]
  has_pairs = 'pretrain/mlm_tlm.gin' in model.gin_files
  batches = {'PAIR_BATCH_SIZE' if has_pairs else 'BATCH_SIZE': model.batch}
  flags.append(_STEPS)
  return Case(
    name, tuple(flags), batches, _TABLE_DEVICES.get(name, (_ONE_GPU,)), DEVICES
  )


def _make_case(
  name: str,
  gin_files: tuple[str, ...],
  batches: dict[str, int],
  *flags: str,
  languages: int = 50,
  vocabulary: int = 250_002,
  section: str = 'model_config.EncoderConfig',
  devices: tuple[str, ...] = (),
) -> Case:
  """Returns the case for gin files and the size of a dummy vocabulary."""
  return Case(
    name,
    (
      *(f'--gin_file={file}' for file in gin_files),
      f'--vocabulary_size={vocabulary}',
      f'--num_languages={languages}',
      f"--gin.{section}.dtype='bfloat16'",
      *flags,
    ),
    batches,
    (),
    devices,
  )


def _make_paper_case(row: scaling.Model) -> Case:
  """Returns the case for a model in `benchmarks.scaling`."""
  return _make_case(
    row.file,
    (f'papers/{row.file}.gin',),
    row.batches,
    *row.flags,
    vocabulary=row.vocabulary,
    languages=row.languages,
    section=row.section,
    devices=DEVICES,
  )


_MOCO = Case(
  'moco-tlm',
  (
    '--gin_file=pretrain/moco_tlm.gin',
    '--gin_file=models/base.gin',
    '--vocabulary_size=119547',
    '--num_languages=104',
    '--gin.QUEUE_SIZE=32768',
    _STEPS,
    "--gin.EncoderConfig.dtype='bfloat16'",
  ),
  {'PAIR_BATCH_SIZE': 128},
  (_EIGHT_GPUS, _MANY_GPUS),
  DEVICES,
)

_REPLACED_TOKEN = Case(
  'replaced-token',
  (
    '--gin_file=pretrain/replaced_token.gin',
    '--gin_file=models/base.gin',
    '--vocabulary_size=250002',
    '--num_languages=100',
    _STEPS,
    "--gin.EncoderConfig.dtype='bfloat16'",
  ),
  {'BATCH_SIZE': 32, 'PAIR_BATCH_SIZE': 32},
  (),
  DEVICES,
)


_INIT_FLAG = "--gin.INIT_DIR='unused'"
_VECO_BATCHES = {'BATCH_SIZE': 16, 'PAIR_BATCH_SIZE': 64}
_SEQ2SEQ = 'encoder_decoder_config.EncoderDecoderConfig'
# mBART's vocabulary has 250,027 tokens, including one for each language.
_MBART_VOCABULARY, _MBART_LANGUAGES = 250_027, 25
# Shipped configurations that score the vocabulary of XLM-R, mBERT or mBART, and
# whose objective, output layer or trainable parameters differ from those of the
# other cases. They are compiled only for the devices in `--devices`.
_OUTPUT_LAYERS = (
  _make_case(
    'mlm-tlm-contrast',
    ('pretrain/mlm_tlm_contrast.gin', 'models/base.gin'),
    {'BATCH_SIZE': 32, 'PAIR_BATCH_SIZE': 64, 'SIDE_BATCH_SIZE': 128},
    '--gin.LENGTH=512',
    _STEPS,
    languages=100,
  ),
  _make_case(
    'mbart',
    ('pretrain/mbart.gin', 'models/mbart.gin'),
    {'BATCH_SIZE': 32},
    '--gin.LENGTH=512',
    _STEPS,
    vocabulary=_MBART_VOCABULARY,
    languages=_MBART_LANGUAGES,
    section=_SEQ2SEQ,
  ),
  # Eight micro-batches of 32 sequences.
  _make_case(
    'recipes/xlm_e/base',
    ('recipes/xlm_e/base.gin',),
    {'BATCH_SIZE': 256, 'PAIR_BATCH_SIZE': 256},
    languages=100,
  ),
  # The language adapters of MAD-X. `MODEL` replaces the pretrained run.
  _make_case(
    'mad_x-language',
    ('pretrain/mlm.gin', 'adapters/mad_x.gin', 'models/base.gin'),
    {'BATCH_SIZE': 64},
    '--gin.LENGTH=512',
    _STEPS,
    *('--gin.REDUCTION_FACTOR=2', '--gin.INVERTIBLE=True'),
    '--gin.model_config.EncoderConfig.adapters=[@adapter_config.Bottleneck()]',
    languages=100,
  ),
  _make_case(
    'ppa/2m_mlm',
    ('papers/ppa/2m_mlm.gin',),
    {'PAIR_BATCH_SIZE': 64},
    *(_INIT_FLAG, '--gin.QUEUE_SIZE=32768'),
    vocabulary=119_547,
    languages=104,
  ),
  _make_case(
    'metaxlm/freezing',
    ('papers/metaxlm/freezing.gin',),
    {'BATCH_SIZE': 8},
    _INIT_FLAG,
    languages=94,
  ),
  dataclasses.replace(
    _make_case(
      'metaxlm/kd', ('papers/metaxlm/kd.gin',), {'BATCH_SIZE': 8}, languages=94
    ),
    # RoBERTa base.
    teacher=encoder_config.EncoderConfig(
      vocab_size=50_265,
      num_layers=12,
      hidden_dim=768,
      mlp_dim=3072,
      num_heads=12,
      max_position_embeddings=512,
      position_offset=2,
      type_vocab_size=1,
      dtype='bfloat16',
    ),
  ),
  _make_case(
    'veco/small_mlm_tlm', ('papers/veco/small_mlm_tlm.gin',), _VECO_BATCHES
  ),
  _make_case(
    'veco/small_mbart_tlm',
    ('papers/veco/small_mbart_tlm.gin',),
    _VECO_BATCHES,
    section=_SEQ2SEQ,
  ),
  *(
    _make_case(
      f'veco/{name}', (f'papers/veco/{name}.gin',), _VECO_BATCHES, _INIT_FLAG
    )
    for name in ('large_phase1', 'large_phase2')
  ),
  *(
    _make_case(
      f'veco/{name}',
      (f'papers/veco/{name}.gin',),
      {'BATCH_SIZE': 64},
      _INIT_FLAG,
      section=_SEQ2SEQ,
    )
    for name in ('iwslt14_small_ca_mlm', 'script_en_de')
  ),
  _make_case(
    'veco/wmt14_en_de_mbart',
    ('papers/veco/wmt14_en_de_mbart.gin',),
    {'BATCH_SIZE': 64},
    _INIT_FLAG,
    vocabulary=_MBART_VOCABULARY,
    languages=_MBART_LANGUAGES,
    section=_SEQ2SEQ,
  ),
)


def _with_config_value(
  case: Case, field: str, value: str, *devices: str
) -> Case:
  """Returns the case with a different value for one field of its model."""
  return dataclasses.replace(
    case,
    name=f'{case.name}-{value}',
    flags=(*case.flags, f"--gin.EncoderConfig.{field}='{value}'"),
    table_devices=devices,
    checked_devices=devices,
  )


def change_case(case: Case, num_layers: int | None, *bindings: str) -> Case:
  """Copies a `Case` with a new number of layers and additional gin bindings.

  Args:
    case: Case to change.
    num_layers: Number of layers of the encoder, and of the decoder or teacher
      if the case has one. If None, the number of layers does not change.
    *bindings: Gin bindings, such as 'EncoderConfig.dropout_rate=0.0'.
  """
  changes = list(bindings)
  if num_layers is not None:
    suffix = ".dtype='bfloat16'"
    (dtype_flag,) = (flag for flag in case.flags if flag.endswith(suffix))
    section = dtype_flag.removeprefix('--gin.').removesuffix(suffix)
    is_encoder_decoder = section.endswith('EncoderDecoderConfig')
    fields = (
      ('num_encoder_layers', 'num_decoder_layers')
      if is_encoder_decoder
      else ('num_layers',)
    )
    changes += [f'{section}.{field}={num_layers}' for field in fields]
  names = ['-' + re.sub(r'^[\w./@]*\.', '', binding) for binding in changes]
  teacher = case.teacher
  if teacher is not None and num_layers is not None:
    teacher = dataclasses.replace(teacher, num_layers=num_layers)
  return dataclasses.replace(
    case,
    name=''.join([case.name, *names]),
    teacher=teacher,
    flags=(*case.flags, *(f'--gin.{binding}' for binding in changes)),
  )


def _with_attention_backend(case: Case, backend: str, *devices: str) -> Case:
  """Returns the case with the given backend and without attention dropout."""
  case = _with_config_value(case, 'attention_backend', backend, *devices)
  rate = '--gin.EncoderConfig.attention_dropout_rate=0.0'
  return dataclasses.replace(case, flags=(*case.flags, rate))


_MODELS = {
  name: _make_model_case(name, model)
  for name, model in pretraining.MODELS.items()
}
CASES = (
  *_MODELS.values(),
  _MOCO,
  _REPLACED_TOKEN,
  _with_config_value(_MODELS['mbert-tlm'], 'remat', 'minimal', _ONE_GPU),
  _with_config_value(_MOCO, 'remat', 'minimal', _EIGHT_GPUS),
  _with_config_value(_MODELS['mbert-tlm'], 'remat', 'save_hidden', _ONE_GPU),
  _with_config_value(_MOCO, 'remat', 'save_hidden', _EIGHT_GPUS),
  _with_config_value(_MODELS['xlmr-large'], 'remat', 'minimal', _ONE_GPU),
  _with_config_value(_MODELS['mbert-tlm'], 'remat', 'full', _ONE_GPU),
  _with_config_value(_MODELS['xlmr-base'], 'matmul_precision', 'fp8', _ONE_GPU),
  _with_attention_backend(_MODELS['xlmr-base'], 'fused', _ONE_GPU, 'tpu:v6e:8'),
  _with_attention_backend(_MODELS['xlmr-base'], 'cudnn', _ONE_GPU),
  *(_make_paper_case(row) for row in scaling.MODELS if row.file in _PAPERS),
  *_OUTPUT_LAYERS,
)


def compile_case(work: pathlib.Path, case: Case, devices: str) -> dict:
  """Returns a training step's compilation result, which is computed only once.

  Args:
    work: Directory in which the results are stored.
    case: Training step to compile.
    devices: Devices to compile for, such as 'gpu:H200:8'.

  Returns:
    The output of `count_step`, or {'error': last lines of the error output}.
  """
  output = work / f'{_file_stem(case, devices)}.json'
  command = (
    *(sys.executable, '-m', 'benchmarks.compiled.count_step'),
    f'--devices={devices}',
  )
  return _run_case(case, devices, command, '--output', output)


def estimate_case(work: pathlib.Path, case: Case, devices: str) -> dict:
  """Returns a training step's dry-run plan, estimated without a compiler.

  Args:
    work: Directory in which the plans are stored.
    case: Training step to plan.
    devices: Devices to plan for, such as 'gpu:H200:8'.

  Returns:
    The plan, or {'error': last lines of the error output}.
  """
  output = work / f'{_file_stem(case, devices)}-estimate.json'
  command = (
    *(sys.executable, '-m', 'xlflax.cli', 'train', '--dry_run'),
    f'--target_topology={devices}',
    '--cost_model=estimate',
  )
  return _run_case(case, devices, command, '--output_file', output)


def _file_stem(case: Case, devices: str) -> str:
  return f'{case.name.replace("/", "_")}@{devices.replace(":", "_")}'


def _run_case(
  case: Case,
  devices: str,
  command: tuple[str, ...],
  output_flag: str,
  output: pathlib.Path,
) -> dict:
  """Runs a command with the flags of a case, unless its output exists.

  Returns:
    The JSON output, or {'error': last lines of the error output}.
  """
  if output.exists():
    return json.loads(output.read_text())
  num_devices = int(devices.split(':')[-1].split('/')[0])
  flags = [
    *case.flags,
    *(
      f'--gin.{name}={rows * num_devices}'
      for name, rows in case.batches.items()
    ),
  ]
  if case.teacher is not None:
    flags.append(f'--gin.INIT_DIR={_write_teacher(output, case.teacher)!r}')
  partial = output.with_suffix('.partial')
  process = subprocess.run(
    [*command, *flags, f'{output_flag}={partial}'],
    capture_output=True,
    text=True,
  )
  if process.returncode:
    error_lines = [
      line
      for line in process.stderr.splitlines()
      if 'Got:' in line or 'rror' in line
    ]
    return {'error': error_lines[-3:]}
  partial.rename(output)
  return json.loads(output.read_text())


def _write_teacher(
  output: pathlib.Path, config: encoder_config.EncoderConfig
) -> str:
  """Writes a run directory with the teacher's model, and returns its path."""
  directory = output.with_name(f'{output.stem}-teacher').absolute()
  directory.mkdir(exist_ok=True)
  run_directory.write_model(directory, encoder.Encoder(config))
  return str(directory)


def summarize_plan(plan: dict) -> dict[str, Any]:
  """Extracts the measurements of a training step from its plan.

  A plan is the output of `count_step`. The measurements, such as the MFU, are
  recorded and compared with those of other versions of xlflax. The result is
  empty if the step did not compile.
  """
  if 'error' in plan:
    return {}
  roofline = plan['roofline']
  all_reduce_bytes = [
    collective['bytes']
    for step in plan['steps']
    for collective in step['largest_collectives']
    if collective['kind'] == 'all-reduce'
  ]
  return {
    'milliseconds': round(roofline['bound']['seconds_per_step'] * 1e3, 2),
    'mfu': round(roofline['bound']['mfu'], 4),
    'peak_gib': round(plan['memory']['total'] / GIB, 2),
    'waited': round(
      roofline['seconds']['waited'] / roofline['bound']['seconds_per_step'], 4
    ),
    'largest_all_reduce_mb': round(max(all_reduce_bytes, default=0) / 1e6, 1),
    'windowed_loops': sum(step['windowed_loops'] for step in plan['steps']),
    'compiler': plan['basis'].partition('(')[2].rstrip(')'),
  }


def find_faults(figures: dict, recorded: dict, devices: str) -> list[str]:
  """Returns descriptions of the problems that make `--check` fail.

  Args:
    figures: Current measurements of the step. They are empty if the step does
      not compile.
    recorded: Recorded measurements of the step. They are empty if the step has
      no record.
    devices: Devices for which the step was compiled.
  """
  if not figures:
    return ['The step does not compile.']
  faults = []
  device_memory = (
    machine_topology.parse_topology(devices).accelerator.memory / GIB
  )
  if figures['peak_gib'] > device_memory:
    faults.append(
      f'Peak memory is {figures["peak_gib"]} GiB, but a device has '
      f'{device_memory:.1f} GiB.'
    )
  if figures['largest_all_reduce_mb'] > 100:
    faults.append(
      f'An all-reduce exchanges {figures["largest_all_reduce_mb"]} MB at once.'
    )
  if figures['windowed_loops']:
    faults.append(f'{figures["windowed_loops"]} loops compute partial sums.')
  if recorded and figures['mfu'] < recorded['mfu'] * (1 - MAX_MFU_LOSS):
    faults.append(
      f'The MFU bound is {figures["mfu"]:.1%}, but {recorded["mfu"]:.1%} is '
      'recorded.'
    )
  if recorded and figures['peak_gib'] > recorded['peak_gib'] * (
    1 + MAX_MEMORY_INCREASE
  ):
    faults.append(
      f'Peak memory is {figures["peak_gib"]} GiB, but '
      f'{recorded["peak_gib"]} GiB is recorded.'
    )
  compilers = [record.get('compiler', '') for record in (recorded, figures)]
  if faults and all(compilers) and compilers[0] != compilers[1]:
    faults.append(
      f'The record was compiled with {compilers[0]}, this step with '
      f'{compilers[1]}.'
    )
  return faults


def format_table(
  results: dict[str, dict | None], initial_version: dict[str, dict]
) -> str:
  """Formats a Markdown table that compares xlflax with its initial version.

  Args:
    results: Map from 'case@devices' to the measurements of the step. The
      measurements are empty if the step does not compile, and None if it was
      not compiled.
    initial_version: Measurements of the initial version of xlflax, as a map
      from 'case@devices' to the measurements of the step.
  """
  lines = [
    '| step | devices | bound, ms | MFU bound | peak, GiB | waiting for '
    'collectives | before: bound, ms | MFU bound | peak, GiB |',
    '| --- ' * 9 + '|',
  ]
  for key, figures in results.items():
    name, devices = key.rsplit('@', 1)
    lines.append(
      f'| {name} | {devices} | {format_cells(figures, ("waited",))} | '
      f'{format_cells(initial_version[key]) if key in initial_version else "- | - | -"} |'
    )
  return '\n'.join(lines)


def format_counts(plans: dict[str, dict]) -> str:
  """Formats kernel counts and memory traffic of training steps as Markdown.

  Args:
    plans: Map from 'case@devices' to the output of `count_step` for the case.
  """
  lines = [
    '| step | devices | kernels | GB | TFLOP | peak, GiB | unaligned matmuls |',
    '| --- ' * 7 + '|',
  ]
  for key, plan in plans.items():
    name, devices = key.rsplit('@', 1)
    if 'error' in plan:
      lines.append(f'| {name} | {devices} | does not compile |' + ' - |' * 4)
      continue
    # A run may have several kinds of steps, one for each set of objectives.
    for step in plan['steps']:
      lines.append(
        f'| {name} | {devices} | {step["num_kernels"]} | '
        f'{step["program_bytes"] / 1e9:.2f} | '
        f'{step["program_flops"] / 1e12:.2f} | '
        f'{plan["memory"]["total"] / GIB:.2f} | {step["unaligned_matmuls"]} |'
      )
  return '\n'.join(lines)


def format_estimates(plans: dict[str, dict]) -> str:
  """Formats the estimated memory and speed of steps as Markdown.

  Args:
    plans: Map from 'case@devices' to the dry-run plan of the case.
  """
  lines = [
    '| step | devices | estimated peak, GiB | estimate, ms | MFU |',
    '| --- ' * 5 + '|',
  ]
  for key, plan in plans.items():
    name, devices = key.rsplit('@', 1)
    if 'error' in plan:
      lines.append(f'| {name} | {devices} | cannot be planned | - | - |')
      continue
    estimate = plan['estimate']
    lines.append(
      f'| {name} | {devices} | {plan["memory"]["total"] / GIB:.1f} | '
      f'{estimate["seconds_per_step"] * 1e3:.1f} | {estimate["mfu"]:.0%} |'
    )
  return '\n'.join(lines)


def format_cells(figures: dict | None, fractions: tuple[str, ...] = ()) -> str:
  """Formats a step's time bound, MFU and peak memory as cells of a table row.

  Args:
    figures: Measurements of one case, as in `format_table`.
    fractions: Keys of additional measurements that are formatted as
      percentages.
  """
  if not figures:
    reason = 'does not compile' if figures is not None else 'not compiled'
    return ' | '.join([reason, *['-'] * (2 + len(fractions))])
  return ' | '.join(
    [
      f'{figures["milliseconds"]:.1f}',
      f'{figures["mfu"]:.1%}',
      f'{figures["peak_gib"]:.1f}',
      *(f'{figures[name]:.1%}' for name in fractions),
    ]
  )


def _select_cases(args) -> list[tuple[Case, str]]:
  """Returns the cases and devices that the flags select."""
  case_names = args.cases.split(',') if args.cases else [c.name for c in CASES]
  devices = args.devices.split(',') if args.devices else None
  return [
    (change_case(case, args.num_layers, *args.binding), topology)
    for case in CASES
    for topology in devices
    or (case.table_devices if args.bounds else case.checked_devices)
    if case.name in case_names
  ]


def _make_parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    'work',
    type=pathlib.Path,
    metavar='WORK',
    help='Directory in which plans are stored.',
  )
  parser.add_argument(
    '--cases', help='Names of the cases, separated by commas. Default: all.'
  )
  parser.add_argument(
    '--devices',
    help='Devices, separated by commas. Default: the devices of each case.',
  )
  parser.add_argument(
    '--num_layers',
    type=int,
    metavar='N',
    help='Number of layers of the models. Defaults to the number of layers '
    'of each case.',
  )
  parser.add_argument(
    '--binding',
    action='append',
    default=[],
    metavar='NAME=VALUE',
    help='Additional gin binding. Repeat the option for several bindings.',
  )
  for flag, text in (
    ('counts', 'Print kernels, bytes and unaligned matmuls of each step.'),
    ('estimates', 'Print dry-run estimates, without compiling.'),
    ('bounds', 'Select only the devices of the table of bounds.'),
    ('check', 'Fail if a step is worse than recorded.'),
    ('record', 'Write the figures to the record.'),
    ('recorded', 'Format the record without compiling.'),
  ):
    parser.add_argument(f'--{flag}', action='store_true', help=text)
  parser.add_argument(
    '--page',
    type=pathlib.Path,
    metavar='FILE',
    help='Markdown page to which the table is written.',
  )
  return parser


def _print_estimates(args) -> int:
  """Prints the dry-run estimates of the selected cases."""
  plans = {
    f'{case.name}@{topology}': estimate_case(args.work, case, topology)
    for case, topology in _select_cases(args)
  }
  errors = {
    key: plan['error'] for key, plan in plans.items() if 'error' in plan
  }
  for key, lines in errors.items():
    print(key, *lines, sep='\n', file=sys.stderr)
  print(format_estimates(plans))
  return 1 if errors else 0


def main() -> int:
  """Compiles training steps and prints, checks or records the results."""
  parser = _make_parser()
  args = parser.parse_args()
  if args.record and (args.num_layers or args.binding):
    parser.error('--record does not support --num_layers and --binding')
  if args.estimates and (
    args.counts or args.check or args.record or args.recorded or args.page
  ):
    parser.error(
      '--estimates cannot be used together with --counts, --check, --record, '
      '--recorded or --page'
    )
  if args.recorded and args.counts:
    parser.error(
      '--counts requires compilation, so it cannot be used '
      'together with --recorded'
    )
  args.work.mkdir(parents=True, exist_ok=True)
  if args.estimates:
    return _print_estimates(args)
  record_file = json.loads(RECORD.read_text()) if RECORD.exists() else {}
  recorded = record_file.get('recorded', {})
  results, plans, num_failed = {}, {}, 0
  for case, topology in _select_cases(args):
    key = f'{case.name}@{topology}'
    if args.recorded:
      results[key] = recorded.get(key)
      continue
    plan = compile_case(args.work, case, topology)
    plans[key] = plan
    results[key] = summarize_plan(plan)
    faults = find_faults(results[key], recorded.get(key, {}), topology)
    faults += [
      warning
      for warning in plan.get('warnings', ())
      if warning.startswith(_FAULT_WARNINGS)
    ]
    num_failed += bool(faults)
    if key not in recorded:
      faults.append('The step is not recorded.')
    notes = ' '.join(faults)
    print(key, results[key] or plan['error'], notes, flush=True)
  table = (
    format_counts(plans)
    if args.counts
    else format_table(results, record_file.get('initial_version', {}))
  )
  print(table)
  if args.page:
    scaling.write_page(args.page, table)
  if args.record:
    # Another process may have changed the record since it was read.
    record_file = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record_file.setdefault('recorded', {}).update(
      {key: figures for key, figures in results.items() if figures}
    )
    RECORD.write_text(json.dumps(record_file, indent=1) + '\n')
  return 1 if args.check and num_failed else 0


if __name__ == '__main__':
  sys.exit(main())
