"""Compiles the steps for GPUs and TPUs that are not there, and judges them.

  python -m benchmarks.compile_targets WORK                  # all, as a table
  python -m benchmarks.compile_targets WORK --cases xlmr-base --devices gpu:H200:64
  python -m benchmarks.compile_targets WORK --check          # against the file
  python -m benchmarks.compile_targets WORK --record         # writes that file
  python -m benchmarks.compile_targets WORK --bounds --recorded   # compiles none

Needs the extras `plan-gpu` and `plan-tpu`. Each case is `python -m
benchmarks.compiled.count_step` in a process of its own; WORK keeps its result, so
a run that was stopped goes on. --check fails where a step does not compile,
takes more memory than is recorded or than a device has, has an MFU bound of
less than 98 % of what is recorded, all-reduces more than 100 MB at once, or
has a product in a loop of partial sums or matmuls whose rows are not aligned,
or where kernels were not counted by their instructions; it says what is not
recorded. --page
writes the table between a page's markers; --recorded takes it from the file.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
from typing import Any

from benchmarks import pretraining, scaling
from benchmarks.compiled import findings, instructions
from xlflax.training.devices import machine_topology

RECORD = pathlib.Path(__file__).with_suffix('.json')
GIB = 2**30
# Of the recorded values: what may be lost before a check fails.
MAX_MFU_LOSS = 0.02
MAX_MEMORY_INCREASE = 0.02
_FAULT_WARNINGS = (instructions.UNCOUNTED, findings.MISALIGNED)


@dataclasses.dataclass(frozen=True)
class Case:
  """A step to compile.

  Attributes:
    name: in the tables.
    flags: of `xlflax train`, but for devices and batch sizes.
    batches: macro -> rows on each device.
    table: the devices of the table of bounds.
    checked: the devices that it is compiled for otherwise.
  """

  name: str
  flags: tuple[str, ...]
  batches: dict[str, int]
  table_devices: tuple[str, ...]
  checked_devices: tuple[str, ...]


_ONE_GPU, _EIGHT_GPUS, _MANY_GPUS = 'gpu:H200:1', 'gpu:H200:8', 'gpu:H200:64'
_TPUS = ('tpu:v5p:8', 'tpu:v6e:8')
DEVICES = (_ONE_GPU, _EIGHT_GPUS, *_TPUS)
_PAPERS = ('ecs/default', 'ppa/2m', 'metaxlm/xlm', 'veco/small_ca_mlm_tlm')
_STEPS = '--gin.TRAIN_STEPS=100000'
_TABLE_DEVICES = {
  'xlmr-base': (
    *(_ONE_GPU, 'gpu:B200:1', _EIGHT_GPUS, _MANY_GPUS),
    *(*_TPUS, 'tpu:v7:8', 'tpu:v5p:64'),
  ),
  'mt5-base': (_EIGHT_GPUS, _MANY_GPUS),
}


def _make_model_case(name: str, model: pretraining.Model) -> Case:
  flags = [
    flag
    for flag in pretraining.make_benchmark_flags(model, 'x/as_is', calls=1)
    if not flag.startswith('--num_steps=') and 'BATCH_SIZE=' not in flag
  ]
  batches = {'BATCH_SIZE': model.batch}
  if 'pretrain/mlm_tlm.gin' in model.gin_files:
    batches['PAIR_BATCH_SIZE'] = model.batch
  flags.append(_STEPS)
  return Case(
    name, tuple(flags), batches, _TABLE_DEVICES.get(name, (_ONE_GPU,)), DEVICES
  )


def _make_paper_case(row: scaling.Model) -> Case:
  flags = (
    f'--gin_file=papers/{row.file}.gin',
    f'--vocabulary_size={row.vocabulary}',
    f'--num_languages={row.languages}',
    f"--gin.{row.section}.dtype='bfloat16'",
    *row.flags,
  )
  return Case(row.file, flags, row.batches, (), DEVICES)


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


def _with_config_value(
  case: Case, field: str, value: str, *devices: str
) -> Case:
  """The case with another value of a field of its model."""
  return dataclasses.replace(
    case,
    name=f'{case.name}-{value}',
    flags=(*case.flags, f"--gin.EncoderConfig.{field}='{value}'"),
    table_devices=devices,
    checked_devices=devices,
  )


def _with_attention_backend(case: Case, backend: str, *devices: str) -> Case:
  """The case without dropout of attention, which other kernels do not have."""
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
  _with_config_value(_MODELS['mbert-tlm'], 'remat', 'minimal', _ONE_GPU),
  _with_config_value(_MOCO, 'remat', 'minimal', _EIGHT_GPUS),
  _with_config_value(_MODELS['mbert-tlm'], 'remat', 'narrow', _ONE_GPU),
  _with_config_value(_MOCO, 'remat', 'narrow', _EIGHT_GPUS),
  _with_config_value(_MODELS['xlmr-large'], 'remat', 'minimal', _ONE_GPU),
  _with_config_value(_MODELS['mbert-tlm'], 'remat', 'full', _ONE_GPU),
  _with_config_value(
    _MODELS['xlmr-base'], 'matmul_precision', 'eight_bits', _ONE_GPU
  ),
  _with_attention_backend(_MODELS['xlmr-base'], 'fused', _ONE_GPU, 'tpu:v6e:8'),
  _with_attention_backend(_MODELS['xlmr-base'], 'cudnn', _ONE_GPU),
  *(_make_paper_case(row) for row in scaling.MODELS if row.file in _PAPERS),
)


def compile_case(work: pathlib.Path, case: Case, devices: str) -> dict:
  """Returns the plan of a case, or {'error': ...}; from WORK if it is there."""
  output = work / f'{case.name.replace("/", "_")}@{devices.replace(":", "_")}'
  output = output.with_name(f'{output.name}.json')
  if output.exists():
    return json.loads(output.read_text())
  count = int(devices.split(':')[-1].split('/')[0])
  command = [
    *(sys.executable, '-m', 'benchmarks.compiled.count_step'),
    f'--devices={devices}',
    *case.flags,
    *(f'--gin.{name}={rows * count}' for name, rows in case.batches.items()),
  ]
  partial = output.with_suffix('.partial')
  done = subprocess.run(
    [*command, f'--output={partial}'], capture_output=True, text=True
  )
  if done.returncode:
    said = [n for n in done.stderr.splitlines() if 'Got:' in n or 'rror' in n]
    return {'error': said[-3:]}
  partial.rename(output)
  return json.loads(output.read_text())


def summarize_plan(made: dict) -> dict[str, Any]:
  """Returns what is recorded of a plan."""
  if 'error' in made:
    return {}
  line = made['roofline']
  reduced = [
    c['bytes']
    for step in made['steps']
    for c in step['largest_collectives']
    if c['kind'] == 'all-reduce'
  ]
  return {
    'milliseconds': round(line['bound']['seconds_per_step'] * 1e3, 2),
    'mfu': round(line['bound']['mfu'], 4),
    'peak_gib': round(made['memory']['total'] / GIB, 2),
    'waited': round(
      line['seconds']['waited'] / line['bound']['seconds_per_step'], 4
    ),
    'largest_all_reduce_mb': round(max(reduced, default=0) / 1e6, 1),
    'windowed_loops': sum(s['windowed_loops'] for s in made['steps']),
    'compiler': made['basis'].partition('(')[2].rstrip(')'),
  }


def find_faults(found: dict, recorded: dict, devices: str) -> list[str]:
  """Returns what a check finds wrong with a case.

  Args:
    found: `figures` of now; empty where it does not compile.
    recorded: of the file; empty where it has none.
    devices: that it was compiled for.
  """
  if not found:
    return ['does not compile']
  wrong = []
  room = machine_topology.parse_topology(devices).accelerator.memory / GIB
  if found['peak_gib'] > room:
    wrong.append(f'peak {found["peak_gib"]} GiB, a device has {room:.1f} GiB')
  if found['largest_all_reduce_mb'] > 100:
    wrong.append(f'all-reduces {found["largest_all_reduce_mb"]} MB at once')
  if found['windowed_loops']:
    wrong.append(f'{found["windowed_loops"]} loops of partial sums')
  if recorded and found['mfu'] < recorded['mfu'] * (1 - MAX_MFU_LOSS):
    wrong.append(f'MFU bound {found["mfu"]:.1%}, was {recorded["mfu"]:.1%}')
  if recorded and found['peak_gib'] > recorded['peak_gib'] * (
    1 + MAX_MEMORY_INCREASE
  ):
    wrong.append(
      f'peak {found["peak_gib"]} GiB, was {recorded["peak_gib"]} GiB'
    )
  used = [each.get('compiler', '') for each in (recorded, found)]
  if wrong and all(used) and used[0] != used[1]:
    wrong.append(f'recorded with {used[0]}, compiled with {used[1]}')
  return wrong


def format_table(
  results: dict[str, dict | None], before: dict[str, dict]
) -> str:
  """Returns Markdown: each case, with its figures before where there are.

  Args:
    results: 'case@devices' -> figures; empty where it does not compile, None
      where it was not compiled.
    before: the same of the first release.
  """
  lines = [
    '| step | devices | bound, ms | MFU bound | peak, GiB | waiting for '
    'collectives | before: bound, ms | MFU bound | peak, GiB |',
    '| --- ' * 9 + '|',
  ]
  for key, found in results.items():
    name, devices = key.split('@')
    lines.append(
      f'| {name} | {devices} | {format_cells(found, ("waited",))} | '
      f'{format_cells(before[key]) if key in before else "- | - | -"} |'
    )
  return '\n'.join(lines)


def format_cells(found: dict | None, more: tuple[str, ...] = ()) -> str:
  """Returns a row's cells: bound, MFU, peak and `more` shares of figures."""
  if not found:
    why = 'does not compile' if found is not None else 'not compiled again'
    return ' | '.join([why, *['-'] * (2 + len(more))])
  return ' | '.join(
    [
      f'{found["milliseconds"]:.1f}',
      f'{found["mfu"]:.1%}',
      f'{found["peak_gib"]:.1f}',
      *(f'{found[name]:.1%}' for name in more),
    ]
  )


def _select_cases(args) -> list[tuple[Case, str]]:
  """The cases and devices that the flags name."""
  wanted = args.cases.split(',') if args.cases else [c.name for c in CASES]
  given = args.devices.split(',') if args.devices else None
  return [
    (case, kind)
    for case in CASES
    for kind in given
    or (case.table_devices if args.bounds else case.checked_devices)
    if case.name in wanted
  ]


def _make_parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('work', type=pathlib.Path, metavar='WORK')
  parser.add_argument('--cases', help='names, with commas; all by default')
  parser.add_argument('--devices', help='with commas; all by default')
  for flag, text in (
    ('bounds', 'only the table of bounds'),
    ('check', 'fail where a step is worse than recorded'),
    ('record', 'write what was compiled to the file'),
    ('recorded', 'compile nothing: the table of the file'),
  ):
    parser.add_argument(f'--{flag}', action='store_true', help=text)
  parser.add_argument('--page', type=pathlib.Path, metavar='FILE')
  return parser


def main() -> int:
  args = _make_parser().parse_args()
  args.work.mkdir(parents=True, exist_ok=True)
  record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
  recorded = record.get('recorded', {})
  results, failed = {}, 0
  for case, kind in _select_cases(args):
    key = f'{case.name}@{kind}'
    if args.recorded:
      results[key] = recorded.get(key)
      continue
    made = compile_case(args.work, case, kind)
    results[key] = summarize_plan(made)
    wrong = find_faults(results[key], recorded.get(key, {}), kind)
    wrong += [
      w for w in made.get('warnings', ()) if w.startswith(_FAULT_WARNINGS)
    ]
    failed += bool(wrong)
    notes = '; '.join(wrong if key in recorded else [*wrong, 'not recorded'])
    print(key, results[key] or made['error'], notes, flush=True)
  text = format_table(results, record.get('first_release', {}))
  print(text)
  if args.page:
    scaling.write_page(args.page, text)
  if args.record:  # read again: others may have written meanwhile
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record.setdefault('recorded', {}).update(
      {key: found for key, found in results.items() if found}
    )
    RECORD.write_text(json.dumps(record, indent=1) + '\n')
  return 1 if args.check and failed else 0


if __name__ == '__main__':
  sys.exit(main())
