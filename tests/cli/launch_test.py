"""Tests of `xlflax launch` and of the jobs that it renders."""

import logging
import shlex

import pytest
import yaml

from tests.errors import raises_error
from xlflax import cli
from xlflax.launch import kubernetes, local, slurm, tpu
from xlflax.utils import errors

_TRAIN = (
  '--',
  'train',
  '--gin_file=pretrain/mlm.gin',
  '--gin_file=models/tiny.gin',
  '--gin.TRAIN_STEPS=4',
  "--gin.VOCABULARY='b c'",
  '--model_dir=/r/a',
)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
  """Keeps commands from changing the logging of the session."""
  monkeypatch.setattr('xlflax.utils.logs.set_up_logging', lambda *_, **__: None)
  monkeypatch.setattr(logging, 'info', lambda *a: None)


def test_local_dry_run_prints_commands(capsys):
  assert (
    cli.main(
      [
        'launch',
        'local',
        '--nproc_per_node=2',
        '--cpu_devices=3',
        '--port=99',
        '--dry_run',
        *_TRAIN,
      ]
    )
    == 0
  )
  lines = capsys.readouterr().out.splitlines()
  assert lines == [
    'JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=3 xlflax train --gin_file=pretrain/mlm.gin '
    '--gin_file=models/tiny.gin --gin.TRAIN_STEPS=4 '
    f"""'--gin.VOCABULARY='"'"'b c'"'"'' --model_dir=/r/a """
    f'--coordinator_address=localhost:99 --num_processes=2 --process_id={i} --preemption_exit_code=75 '
    f'--platform=cpu > '
    f'/r/a.logs/process_{i}.log 2>&1 &'
    for i in range(2)
  ] + ['wait']


def test_local_job_runs_processes(monkeypatch):
  received = {}
  monkeypatch.setattr(
    local.LocalJob, 'launch', lambda job: received.update(job=job) or 7
  )
  assert (
    cli.main(
      [
        'launch',
        'local',
        '--nproc_per_node=2',
        '--logs=l',
        '--max_restarts=3',
        '--grace_seconds=4',
        '--',
        'xlflax',
        'train',
        '--model_dir=r',
      ]
    )
    == 7
  )
  job = received['job']
  assert (
    job.command,
    job.nproc_per_node,
    job.cpu_devices,
    str(job.logs),
    job.grace_seconds,
    job.max_restarts,
  ) == (('train', '--model_dir=r'), 2, None, 'l', 4.0, 3)


def test_slurm_dry_run_prints_the_script(capsys):
  script = _launch(
    capsys,
    'slurm',
    '--nodes=2',
    '--gpus_per_node=4',
    '--ntasks_per_node=4',
    '--sbatch_arg=--exclusive',
    '--dry_run',
    *_TRAIN,
  )
  assert '#SBATCH --ntasks-per-node=4\n' in script
  assert '#SBATCH --exclusive\n' in script
  command = shlex.join([*_TRAIN[1:], '--platform=gpu'])
  assert f'\ncommand=({command})\n' in script


def _launch(capsys, *arguments) -> str:
  assert cli.main(['launch', *arguments]) == 0
  return capsys.readouterr().out


@pytest.mark.parametrize(
  'command',
  [
    (
      'cache',
      '--corpus=/r/c',
      '--vocabulary=/r/v',
      '--shard_from_env',
      '--output=/r/k',
    ),
    (
      'preprocess',
      '--corpus=/r/c',
      '--shard_from_env',
      '--output=/r/k',
      '--num_workers=8',
    ),
    ('vocab', '--corpus=/r/c', '--sample_dir=/r/k', '--shard_from_env'),
  ],
)
def test_shards_are_launched_as_slurm_arrays_and_indexed_pods(capsys, command):
  sharded_command = ('--dry_run', '--', *command)
  script = _launch(capsys, 'slurm', '--array=0-15', *sharded_command)
  assert '#SBATCH --array=0-15\n' in script
  assert f'\ncommand=({" ".join(command)})\n' in script
  flags = ('--name=k', '--image=i', '--nnodes=4', '--gpus_per_pod=0')
  volume = '--volume=claim:r:/r'
  out = _launch(capsys, 'kubernetes', *flags, volume, *sharded_command)
  [manifest] = yaml.safe_load_all(out)
  [workers] = manifest['spec']['replicatedJobs']
  job = workers['template']['spec']
  [container] = job['template']['spec']['containers']
  assert job['completions'] == 4
  assert container['command'] == ['xlflax', *command]
  names = {variable['name'] for variable in container['env']}
  assert names >= {'XLFLAX_PROCESS_ID', 'XLFLAX_NUM_PROCESSES'}


def test_sharded_commands_on_gpus_have_no_training_flags(capsys):
  flags = ('slurm', '--array=0-3', '--gpus_per_node=1', '--dry_run', '--')
  command = ('preprocess', '--corpus=c', '--output=k', '--shard_from_env')
  script = _launch(capsys, *flags, *command)
  assert f'\ncommand=({" ".join(command)})\n' in script
  assert '--preemption_exit_code' not in script


def test_slurm_job_is_submitted(monkeypatch, capsys):
  monkeypatch.setattr(slurm, 'submit_job', lambda job, _: str(job.command[-1]))
  assert _launch(capsys, 'slurm', *_TRAIN) == '--model_dir=/r/a\n'


_POD = ('--name=mlm', '--image=i', '--nnodes=2', '--volume=claim:r:/r')


def test_kubernetes_dry_run_prints_the_manifest(capsys):
  assert (
    cli.main(
      [
        'launch',
        'kubernetes',
        *_POD,
        '--manifest=job',
        '--node_selector=gpu=h200',
        '--env=A=1',
        '--env=B=x=y',
        '--annotation=a.b/c=d',
        '--label=team=nlp',
        '--resource=rdma/hca=8',
        '--toleration=spot:NoSchedule',
        '--pull_secret=s',
        '--queue=q',
        '--dry_run',
        *_TRAIN,
      ]
    )
    == 0
  )
  service, job = yaml.safe_load_all(capsys.readouterr().out)
  assert (service['kind'], job['kind']) == ('Service', 'Job')
  pod = job['spec']['template']['spec']
  assert pod['nodeSelector'] == {'gpu': 'h200'}
  assert pod['imagePullSecrets'] == [{'name': 's'}]
  assert pod['tolerations'][1]['key'] == 'spot'
  [container] = pod['containers']
  variables = {v['name']: v.get('value') for v in container['env']}
  assert (variables['A'], variables['B']) == ('1', 'x=y')
  assert container['resources']['requests']['rdma/hca'] == '8'
  assert container['volumeMounts'][1]['mountPath'] == '/r'
  metadata = job['spec']['template']['metadata']
  assert metadata['annotations'] == {'a.b/c': 'd'}
  assert metadata['labels']['team'] == service['metadata']['labels']['team']
  assert pod['containers'][0]['command'] == [
    'xlflax',
    *_TRAIN[1:],
    '--preemption_exit_code=75',
    '--platform=gpu',
    '--initialization_timeout=3600',
  ]


def test_kubernetes_job_is_submitted(monkeypatch, capsys):
  monkeypatch.setattr(
    kubernetes,
    'apply_manifests',
    lambda job, environment: f'{job.manifest.value} {job.nnodes}',
  )
  assert cli.main(['launch', 'kubernetes', *_POD, *_TRAIN]) == 0
  assert capsys.readouterr().out == 'jobset 2\n'


_BUCKET = (*_TRAIN[:-1], '--model_dir=gs://bucket/a')
_SLICE = (
  '--name=mlm',
  '--zone=z',
  '--accelerator_type=v4-8',
  '--runtime_version=v',
  '--package=git+https://example.org/xlflax',
)


def test_tpu_dry_run_prints_commands(capsys):
  assert (
    cli.main(
      ['launch', 'tpu', *_SLICE, '--num_slices=2', '--dry_run', *_BUCKET]
    )
    == 0
  )
  assert '--node-count=2 --node-prefix=mlm' in capsys.readouterr().out


def test_tpu_job_is_started(monkeypatch):
  monkeypatch.setattr(tpu, 'run_script', lambda job, environment: 3)
  assert cli.main(['launch', 'tpu', *_SLICE, *_BUCKET]) == 3


@pytest.mark.parametrize(
  'arguments',
  [
    ('local', '--nproc_per_node=2'),
    ('local', '--nproc_per_node=2', '--', 'vocab'),
    ('slurm', '--', 'preprocess', '--corpus=c'),
    ('slurm', '--', 'train', '--num_processes=2'),
    ('slurm', '--dry_run', *_TRAIN, '--nodes=4'),
    ('slurm', '--dry_run', '--', 'train', '--gin_file=pretrain/mlm.gin'),
    ('slurm', '--dry_run', '--time=24h', *_TRAIN),
    ('local', '--nproc_per_node=0', *_TRAIN),
    ('cloud', *_TRAIN),
    ('kubernetes', *_POD, '--node_selector=a', *_TRAIN),
    ('kubernetes', *_POD[:-1], *_TRAIN),
    ('slurm', '--', 'train', '--gin_file=pretrain/mlmm.gin'),
    ('tpu', *_SLICE, *_TRAIN),
    (),
    ('local', *_TRAIN),
    ('kubernetes', *_TRAIN),
  ],
)
def test_invalid_options_exit_with_one_message(capsys, arguments):
  assert cli.main(['launch', *arguments]) == 2
  assert capsys.readouterr().err.strip()


def test_launcher_option_after_the_separator_is_rejected():
  with raises_error(
    errors.ConfigError, got='--cpu_devices', mentions=('local', '--')
  ) as caught:
    cli.parse('launch', ['local', *_TRAIN, '--cpu_devices=1'])
  assert 'before --' in caught.value.fix


_MLM = ('train', '--gin_file=pretrain/mlm.gin', '--model_dir=/r/a')
_MACROS = (
  '--gin_file=models/tiny.gin',
  '--gin.TRAIN_STEPS=4',
  '--vocabulary=/r/vocabulary',
)


@pytest.mark.parametrize(
  'launcher',
  [
    ('local', '--nproc_per_node=2'),
    ('node', '--nproc_per_node=2'),
    ('slurm',),
    ('kubernetes', *_POD),
    ('tpu', *_SLICE),
  ],
  ids=lambda launcher: launcher[0],
)
def test_missing_macros_are_reported_before_rendering(launcher, capsys):
  command = (
    (*_MLM[:-1], '--model_dir=gs://b/a') if launcher[0] == 'tpu' else _MLM
  )
  with raises_error(
    errors.ConfigError, mentions=('MODEL', 'VOCABULARY', 'TRAIN_STEPS')
  ):
    cli.parse('launch', [*launcher, '--dry_run', '--', *command])()
  assert not capsys.readouterr().out
  # Neither the corpus nor the vocabulary exists on the launching machine.
  assert _launch(capsys, *launcher, '--dry_run', '--', *command, *_MACROS)


def test_unused_macros_are_reported_before_rendering():
  with raises_error(errors.ConfigError, got='BATCHSIZE'):
    cli.parse(
      'launch',
      ['slurm', '--dry_run', '--', *_MLM, *_MACROS, '--gin.BATCHSIZE=4'],
    )()


def test_missing_macros_of_phases_are_reported():
  command = ('train', '--phases=recipes/modernbert', '--model_dir=/r/a')
  with raises_error(errors.ConfigError, mentions='VOCABULARY'):
    cli.parse('launch', ['slurm', '--dry_run', '--', *command])()


def test_gin_files_in_the_image_are_not_checked(capsys):
  """Only the pods can read the gin file, which may set all macros."""
  own_file = '--gin_file=/configs/mine.gin'
  flags = ('kubernetes', *_POD, '--dry_run')
  assert _launch(capsys, *flags, '--', *_MLM, own_file)


def _sweep(directory, *lines) -> str:
  path = directory / 'sweep.txt'
  path.write_text(''.join(f'{line}\n' for line in lines))
  return f'--sweep={path}'


_GOOD_LINE = '--model_dir=/shared/a --gin.TRAIN_STEPS=4 --vocabulary="/r/b c"'


@pytest.mark.parametrize(
  'line, got',
  [
    (
      '--model_dirr=/shared/b --gin.TRAIN_STEPS=4 --vocabulary=v',
      '--model_dirr',
    ),
    ('--model_dir=/tmp/b --gin.TRAIN_STEPS=4 --vocabulary=v', '/tmp/b'),
    (
      '--model_dir=/shared/b --gin_file=models/tinny.gin --vocabulary=v',
      'models/tinny.gin',
    ),
    ('--model_dir=/shared/b --vocabulary=v', ...),  # no TRAIN_STEPS
    ('--gin.TRAIN_STEPS=4 --vocabulary=v', ...),  # no model directory
    ('--model_dir=/shared/b --gin.TRAIN_STEPS="4 --vocabulary=v', ...),
    ("--model_dir=/shared/b '--gin.TRAIN_STEP=4' --vocabulary=v", ...),
  ],
)
def test_lines_of_a_sweep_are_checked(shared_path, line, got):
  sweep = _sweep(shared_path, _GOOD_LINE, '', line)
  arguments = ['slurm', '--nodes=2', sweep, '--dry_run', '--', 'train']
  arguments += ['--gin_file=pretrain/mlm.gin', '--gin_file=models/tiny.gin']
  with raises_error(errors.ConfigError, got=got) as caught:
    cli.parse('launch', arguments)()
  location = str(caught.value.where).partition(', ')[0]
  assert location == f'{shared_path}/sweep.txt:3'


_RATE = '--gin.LEARNING_RATE'


@pytest.mark.parametrize(
  'lines, arguments, got',
  [
    (('--model_dir=/r/a', '--model_dir=/r/a/'), (), '/r/a'),
    (('--model_dir=gs://b/a', '--model_dir gs://b/a/'), (), 'gs://b/a'),
    (('--gin.MODEL_DIR="\'/r/a\'"', '--model_dir=/r/a'), (), '/r/a'),
    ((f'{_RATE}=1e-3', f'{_RATE}=2e-3'), ('--model_dir=/r/a',), '/r/a'),
    ((f'{_RATE}=1e-3', f'{_RATE}=2e-3'), (), ...),
    (
      (f'{_RATE}=1e-3', f'{_RATE}=2e-3'),
      ('--gin_file=/r/own.gin',),
      '--gin_file=pretrain/mlm.gin --gin_file=/r/own.gin',
    ),
  ],
)
def test_runs_of_a_sweep_must_not_share_a_directory(
  shared_path, lines, arguments, got
):
  command = ('train', '--gin_file=pretrain/mlm.gin', *arguments)
  first, last = lines
  sweep = shared_path / 'sweep.txt'
  sweep.write_text(f'{first}\n--model_dir=/r/other\n\n{last}\n')
  with raises_error(errors.ConfigError, got=got, mentions='1,4') as caught:
    slurm.SlurmJob(command=command, sweep=sweep).check()
  assert f'{sweep}:1' in caught.value.where
  assert '--model_dir' in caught.value.fix


def test_runs_of_a_sweep_may_bind_their_directories_in_gin_files(shared_path):
  sweep = shared_path / 'sweep.txt'
  files = [shared_path / name for name in ('a.gin', 'b.gin')]
  for file in files:
    file.write_text("MODEL_DIR = '/r'\n")
  sweep.write_text(''.join(f'--gin_file={file}\n' for file in files))
  slurm.SlurmJob(command=('train',), sweep=sweep).check()
  # A task that is started alone does not share its directory.
  sweep.write_text('--gin.LEARNING_RATE=1e-3\n--gin.LEARNING_RATE=2e-3\n')
  command = ('train', '--model_dir=/r/a')
  slurm.SlurmJob(command=command, sweep=sweep, array='2').check()


def test_only_selected_lines_of_a_sweep_are_checked(shared_path, capsys):
  other_line = _GOOD_LINE.replace('/shared/a', '/shared/b')
  sweep = _sweep(shared_path, '--comment', _GOOD_LINE, other_line, '')
  command = ('--', 'train', *_MLM[1:2], '--gin_file=models/tiny.gin')
  flags = ('slurm', '--nodes=2', sweep, '--dry_run')
  script = _launch(capsys, *flags, '--array=2-3%1', *command)
  assert '#SBATCH --array=2-3%1\n' in script
  for array, number in (('2-4', 4), ('3,7', 7), ('0-4:2', 0)):
    with raises_error(errors.ConfigError, got=number):
      cli.parse('launch', [*flags, f'--array={array}', *command])()
