"""Tables of dry-run plans for published models on 1 to 512 GPUs.

  python -m benchmarks.scaling WORK [--page docs/scaling.md]
  python -m benchmarks.scaling WORK --models=ecs/default --devices=1,8
  python -m benchmarks.scaling WORK --most_compiled=0   # estimates only

Runs `xlflax train --dry_run --target_topology=gpu:H200:N` for each model,
number of devices and mesh. For up to 64 devices, the GPU compiler compiles the
steps if the extra `plan-gpu` is installed. All other steps are estimated. The
column `by` in the tables shows which method was used. A JSON file for each plan
is stored in WORK, so that an interrupted run can be resumed. The tables include
all plans in WORK. --page writes the tables between markers in a page.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys

DEVICES = (1, 8, 64, 512)
# Default of the largest number of devices that steps are compiled for.
MAX_COMPILED_DEVICES = 64
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Model:
  """A published model for which dry-run plans are made.

  Attributes:
    name: Name of the model in the tables.
    file: Name of a gin file in `papers/`, without its suffix.
    vocabulary: Vocabulary size.
    languages: Number of languages.
    width: Size of the hidden states. FSDP splits parameters along this
      dimension.
    batches: Map from the gin macro of each batch size to the number of
      sequences per device in the paper.
    flags: Additional flags that the gin file requires.
    section: Name of the configuration class that has the field `dtype`.
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
  """Returns the gin flags that configure the device mesh of a dry run.

  Args:
    model: Model whose training steps are planned.
    devices: Number of devices on which the model would be trained.
    mesh: Name of the mesh, 'default' or 'full'. 'default' is the mesh that
      xlflax derives from the number of devices. 'full' splits the training
      state over all devices. If the model's width is not divisible by the
      number of devices, the remaining factor becomes the size of the tensor
      axis, which also splits parameters.
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
  """Returns the path of the file that stores a dry-run plan."""
  return work / f'{model.file.replace("/", "_")}_{devices}_{mesh}.json'


def make_plan(
  work: pathlib.Path,
  model: Model,
  devices: int,
  mesh: str,
  most_compiled: int = MAX_COMPILED_DEVICES,
) -> dict:
  """Returns a dry-run plan, reading it from its file if it exists.

  Args:
    work: Directory in which plans are stored.
    model: Model whose training steps are planned.
    devices: Number of devices on which the model would be trained.
    mesh: Name of the mesh, as in `make_mesh_flags`.
    most_compiled: Maximum number of devices for which steps are compiled. With
      more devices, the plan is estimated.

  Raises:
    SystemExit: If the dry run fails.
  """
  output = plan_path(work, model, devices, mesh)
  if output.exists():
    return json.loads(output.read_text())
  partial = output.with_suffix('.partial')
  cost_model = 'auto' if devices <= most_compiled else 'estimate'
  # A dry run creates as many CPU devices as it plans for, so each one needs its
  # own process.
  process = subprocess.run(
    [
      *(sys.executable, '-m', 'xlflax.cli', 'train', '--dry_run'),
      f'--gin_file=papers/{model.file}.gin',
      f'--vocabulary_size={model.vocabulary}',
      f'--num_languages={model.languages}',
      f'--target_topology=gpu:H200:{devices}',
      f'--cost_model={cost_model}',
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
  if process.returncode:
    raise SystemExit(f'The dry run of {output.stem} failed:\n{process.stderr}')
  partial.rename(output)
  return json.loads(output.read_text())


def format_tables(plans: dict[tuple[str, int, str], dict]) -> str:
  """Formats the planned memory use and speed as Markdown tables."""
  lines = [
    'Memory for the training state if it is split over all devices:',
    '',
    *_format_memory_table(plans),
    '',
  ]
  for mesh, title in (
    (
      'full',
      'Time and memory of a step if the training state is split over all '
      'devices:',
    ),
    (
      'default',
      'Time and memory of a step with the default mesh (FSDP within a node, '
      'data parallelism across nodes):',
    ),
  ):
    rows = {key: p for key, p in plans.items() if key[2] == mesh}
    if rows:
      lines += [title, '', *_format_speed_table(rows), '']
  return '\n'.join(lines)


def _format_memory_table(plans) -> list[str]:
  """Returns the lines of the table that shows state memory."""
  lines = [
    '| model | parameters | devices | mesh (data x fsdp x tensor) | '
    'state, MiB | split over all devices, MiB | split x devices, MiB | '
    'not split over all devices, MiB |',
    '| --- ' * 8 + '|',
  ]
  for (name, devices, mesh), plan in plans.items():
    if mesh != 'full':
      continue
    sharding = plan['sharding']
    split, not_split = sharding['split'], sharding['not_split']
    lines.append(
      f'| {name} | {plan["parameters"]["total"] / 1e6:.1f}M | {devices} | '
      f'{_format_mesh(plan)} | {_format_mib(split + not_split)} | '
      + (
        f'{_format_mib(split)} | {_format_mib(split * devices)} | {_format_mib(not_split)} |'
        if split
        else '- | - | - |'
      )
    )
  return lines


def _format_mib(size: float) -> str:
  return f'{size / 2**20:,.1f}'


def _format_speed_table(plans) -> list[str]:
  """Returns the lines of the table that shows peak memory and speed."""
  lines = [
    '| model | devices | mesh | by | peak, GiB of 131 | sent, GiB | '
    'to other nodes, GiB | estimate, ms | exposed communication | '
    'largest part | tokens/s | MFU |',
    '| --- ' * 12 + '|',
  ]
  for (name, devices, _), plan in plans.items():
    memory, estimate = plan['memory'], plan['estimate']
    seconds = estimate['seconds_per_step']
    sent_bytes, outside_bytes = (
      sum(collective[key] for collective in plan['collectives'].values())
      for key in ('sent', 'sent_outside')
    )
    lines.append(
      f'| {name} | {devices} | {_format_mesh(plan)} | '
      f'{"compiler" if plan["compiled"] else "estimate"} | '
      f'{memory["total"] / GIB:.1f} | '
      f'{sent_bytes / GIB:.2f} | {outside_bytes / GIB:.2f} | '
      f'{seconds * 1e3:.1f} | {estimate["parts"]["exposed"] / seconds:.0%} | '
      f'{estimate["limit"]} | '
      f'{estimate["tokens_per_second"]:,.0f} | '
      f'{estimate["mfu"]:.0%} |'
    )
  return lines


def _format_mesh(plan) -> str:
  return ' x '.join(str(n) for n in plan['mesh'].values())


def write_page(page: pathlib.Path, text: str, marker: str = 'tables') -> None:
  """Replaces the text between two markers in a page.

  Args:
    page: Markdown file with the lines `<!-- MARKER -->` and
      `<!-- end of MARKER -->`.
    text: New text, which replaces the text between the markers.
    marker: Word in the markers, such as MARKER in `<!-- MARKER -->`.
  """
  start_marker, end_marker = f'<!-- {marker} -->\n', f'<!-- end of {marker} -->'
  before, remainder = page.read_text().split(start_marker)
  page.write_text(
    before
    + start_marker
    + '\n'
    + text
    + '\n'
    + end_marker
    + remainder.split(end_marker)[1]
  )


def _parse_arguments() -> argparse.Namespace:
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
    '--page',
    type=pathlib.Path,
    metavar='FILE',
    help='Markdown page to which the tables are written.',
  )
  parser.add_argument(
    '--models', help='Models to plan, separated by commas. Default: all.'
  )
  parser.add_argument(
    '--devices', help='Numbers of devices, separated by commas. Default: all.'
  )
  parser.add_argument(
    '--most_compiled',
    type=int,
    default=MAX_COMPILED_DEVICES,
    metavar='DEVICES',
    help='Maximum number of devices for which steps are compiled instead of '
    'estimated (default: %(default)s).',
  )
  return parser.parse_args()


def _list_plans() -> list[tuple[Model, int, str]]:
  """Returns the models, numbers of devices and meshes of the tables."""
  return [
    (model, num_devices, mesh)
    for mesh in ('full', 'default')
    for model in MODELS
    for num_devices in DEVICES
    if mesh == 'full' or num_devices > 8
  ]


def main() -> None:
  """Makes the selected dry-run plans and writes them as tables."""
  args = _parse_arguments()
  args.work.mkdir(parents=True, exist_ok=True)
  models = args.models.split(',') if args.models else [m.file for m in MODELS]
  devices = (
    [int(num_devices) for num_devices in args.devices.split(',')]
    if args.devices
    else DEVICES
  )
  plans = {
    (model.name, num_devices, mesh): make_plan(
      args.work, model, num_devices, mesh, args.most_compiled
    )
    for model, num_devices, mesh in _list_plans()
    if (model.file in models and num_devices in devices)
    or plan_path(args.work, model, num_devices, mesh).exists()
  }
  text = format_tables(plans)
  (args.work / 'scaling.md').write_text(text)
  if args.page:
    write_page(args.page, text)


if __name__ == '__main__':
  main()
