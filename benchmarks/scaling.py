"""Plans of the papers' models from 1 to 512 devices, as tables.

  python -m benchmarks.scaling WORK [--page docs/scaling.md]
  python -m benchmarks.scaling WORK --models=ecs/default --devices=1,8
  python -m benchmarks.scaling WORK --most_compiled=0   # the rest: estimates

Runs `xlflax train --dry_run --target_topology=gpu:H200:N` for each model, number of
devices and mesh. Up to 64 devices GPUs' own compiler compiles the steps where
the extra `plan-gpu` is installed; what it does not compile is an estimate, and
its row says so. WORK keeps a JSON file for each plan, so a run that was stopped
goes on where it was, and the tables have all plans that are in WORK. --page
writes them between the page's markers.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys

DEVICES = (1, 8, 64, 512)
# The most devices that steps are compiled for, not estimated, by default.
MAX_COMPILED_DEVICES = 64
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Model:
  """A row of a paper.

  Attributes:
    name: in the tables.
    file: its gin file below `papers/`.
    vocabulary: number of entries.
    languages: number of them.
    width: of the states, which FSDP splits.
    batches: macro -> rows on each device, the paper's.
    flags: what the file needs besides.
    section: of the configuration that holds the dtype.
  """

  name: str
  file: str
  vocabulary: int
  languages: int
  width: int
  batches: dict[str, int]
  flags: tuple[str, ...] = ()
  section: str = 'model_config.EncoderConfig'


_INIT_FLAGS = ("--gin.INIT_DIR='unused'",)
MODELS = (
  Model('ECS', 'ecs/default', 80_000, 2, 768, {'BATCH_SIZE': 96}),
  # The queue must be a multiple of every global batch.
  Model(
    'PPA (mBERT)',
    'ppa/2m',
    110_000,
    104,
    768,
    {'PAIR_BATCH_SIZE': 64},
    (*_INIT_FLAGS, '--gin.QUEUE_SIZE=32768'),
  ),
  Model(
    'MetaXLM, XLM-R base', 'metaxlm/xlm', 250_002, 94, 768, {'BATCH_SIZE': 8}
  ),
  Model(
    'VECO small',
    'veco/small_ca_mlm_tlm',
    250_002,
    50,
    768,
    {'BATCH_SIZE': 16, 'PAIR_BATCH_SIZE': 64},
  ),
  Model(
    'VECO large',
    'veco/large_phase2',
    250_002,
    50,
    1024,
    {'BATCH_SIZE': 16, 'PAIR_BATCH_SIZE': 64},
    _INIT_FLAGS,
  ),
  Model(
    'VECO translation',
    'veco/wmt14_en_de_random',
    250_002,
    50,
    1024,
    {'BATCH_SIZE': 64},
    section='encoder_decoder_config.EncoderDecoderConfig',
  ),
)


def make_mesh_flags(model: Model, devices: int, mesh: str) -> list[str]:
  """Bindings of a mesh: 'full' splits state over all devices.

  Devices that do not divide the width go to the tensor axis, which then
  splits parameters too. 'default' is what the devices come to by themselves.
  """
  if mesh == 'default':
    return []
  fsdp = devices
  while model.width % fsdp:
    fsdp //= 2
  flags = {'data': 1, 'fsdp': fsdp, 'tensor': devices // fsdp}
  if fsdp < devices:
    flags['tensor_splits'] = "'parameters'"
  return [f'--gin.partitioning.Partitioner.{k}={v}' for k, v in flags.items()]


def plan_path(
  work: pathlib.Path, model: Model, devices: int, mesh: str
) -> pathlib.Path:
  """The file of a plan."""
  return work / f'{model.file.replace("/", "_")}_{devices}_{mesh}.json'


def make_plan(
  work: pathlib.Path,
  model: Model,
  devices: int,
  mesh: str,
  most_compiled: int = MAX_COMPILED_DEVICES,
) -> dict:
  """One plan, from its file if it is there.

  Args:
    work: where the file is.
    model: a row of a paper.
    devices: how many.
    mesh: of `mesh_flags`.
    most_compiled: steps for more devices are estimated.
  """
  output = plan_path(work, model, devices, mesh)
  if output.exists():
    return json.loads(output.read_text())
  partial = output.with_suffix('.partial')
  by = 'auto' if devices <= most_compiled else 'estimate'
  done = subprocess.run(  # a process of its own: it has as many CPU devices
    [
      *(sys.executable, '-m', 'xlflax.cli', 'train', '--dry_run'),
      f'--gin_file=papers/{model.file}.gin',
      f'--vocabulary_size={model.vocabulary}',
      f'--num_languages={model.languages}',
      f'--target_topology=gpu:H200:{devices}',
      f'--cost_model={by}',
      *(
        f'--gin.{macro}={rows * devices}'
        for macro, rows in model.batches.items()
      ),
      f"--gin.{model.section}.dtype='bfloat16'",
      *make_mesh_flags(model, devices, mesh),
      *model.flags,
      f'--output_file={partial}',
    ],
    capture_output=True,
    text=True,
  )
  if done.returncode:
    raise SystemExit(f'{output.stem} could not be planned: {done.stderr}')
  partial.rename(output)
  return json.loads(output.read_text())


def format_tables(plans: dict[tuple[str, int, str], dict]) -> str:
  """Memory and speed of all plans, as Markdown."""
  lines = [
    'State split over all devices:',
    '',
    *_format_memory_table(plans),
    '',
  ]
  for mesh, title in (
    ('full', 'Steps, with state split over all devices:'),
    (
      'default',
      'Steps, with the mesh that the devices come to by '
      'themselves (FSDP in a node, data across nodes):',
    ),
  ):
    rows = {key: p for key, p in plans.items() if key[2] == mesh}
    if rows:
      lines += [title, '', *_format_speed_table(rows), '']
  return '\n'.join(lines)


def _format_memory_table(plans) -> list[str]:
  lines = [
    '| model | parameters | devices | mesh (data x fsdp x tensor) | '
    'state, MiB | of it split over all, MiB | that x devices | the '
    'rest, MiB |',
    '| --- ' * 8 + '|',
  ]
  for (name, devices, mesh), made in plans.items():
    if mesh != 'full':
      continue
    found = made['sharding']
    split, rest = found['split'], found['replicated']
    lines.append(
      f'| {name} | {made["parameters"]["total"] / 1e6:.1f}M | {devices} | '
      f'{_format_mesh(made)} | {_format_mib(split + rest)} | '
      + (
        f'{_format_mib(split)} | {_format_mib(split * devices)} | {_format_mib(rest)} |'
        if split
        else '- | - | - |'
      )
    )
  return lines


def _format_mib(size: float) -> str:
  return f'{size / 2**20:,.1f}'


def _format_speed_table(plans) -> list[str]:
  lines = [
    '| model | devices | mesh | by | peak, GiB of 131 | sent, GiB | '
    'to other nodes, GiB | estimate, ms | of it exposed communication | '
    'largest part | tokens/s | MFU |',
    '| --- ' * 12 + '|',
  ]
  for (name, devices, _), made in plans.items():
    memory, estimate = made['memory'], made['estimate']
    seconds = estimate['seconds_per_step']
    sent, outside = (
      sum(kind[k] for kind in made['collectives'].values())
      for k in ('sent', 'sent_outside')
    )
    lines.append(
      f'| {name} | {devices} | {_format_mesh(made)} | '
      f'{"compiler" if made["compiled"] else "estimate"} | '
      f'{memory["total"] / GIB:.1f} | '
      f'{sent / GIB:.2f} | {outside / GIB:.2f} | '
      f'{seconds * 1e3:.1f} | {estimate["parts"]["exposed"] / seconds:.0%} | '
      f'{estimate["limit"]} | '
      f'{estimate["tokens_per_second"]:,.0f} | '
      f'{estimate["mfu"]:.0%} |'
    )
  return lines


def _format_mesh(made) -> str:
  return ' x '.join(str(n) for n in made['mesh'].values())


def write_page(page: pathlib.Path, text: str, what: str = 'tables') -> None:
  """Puts the tables between the page's markers, <!-- `what` --> and its end."""
  begin, end = f'<!-- {what} -->\n', f'<!-- end of {what} -->'
  before, rest = page.read_text().split(begin)
  page.write_text(
    before + begin + '\n' + text + '\n' + end + rest.split(end)[1]
  )


def _parse_arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('work', type=pathlib.Path, metavar='WORK')
  parser.add_argument('--page', type=pathlib.Path, metavar='FILE')
  for flag in ('models', 'devices'):
    parser.add_argument(f'--{flag}', help='plan only these; with commas')
  parser.add_argument(
    '--most_compiled',
    type=int,
    default=MAX_COMPILED_DEVICES,
    metavar='DEVICES',
    help='estimate steps for more devices than that (%(default)s)',
  )
  return parser.parse_args()


def _list_plans() -> list[tuple[Model, int, str]]:
  return [
    (model, n, mesh)
    for mesh in ('full', 'default')
    for model in MODELS
    for n in DEVICES
    if mesh == 'full' or n > 8
  ]


def main() -> None:
  args = _parse_arguments()
  args.work.mkdir(parents=True, exist_ok=True)
  models = args.models.split(',') if args.models else [m.file for m in MODELS]
  devices = (
    [int(n) for n in args.devices.split(',')] if args.devices else DEVICES
  )
  plans = {
    (model.name, n, mesh): make_plan(
      args.work, model, n, mesh, args.most_compiled
    )
    for model, n, mesh in _list_plans()
    if (model.file in models and n in devices)
    or plan_path(args.work, model, n, mesh).exists()
  }
  text = format_tables(plans)
  (args.work / 'scaling.md').write_text(text)
  if args.page:
    write_page(args.page, text)


if __name__ == '__main__':
  main()
