"""Hostile values in what launchers render: nothing runs, values arrive."""

import dataclasses
import pathlib
import re
import subprocess

import hypothesis
import pytest
import yaml
from hypothesis import strategies

from xlflax.foundation import errors
from xlflax.launch import (
  kubernetes,
  kubernetes_settings,
  local,
  slurm,
  tpu,
  values,
)

# Each would make a file HIT if a shell evaluated it.
_ATTACKS = (
  '$(touch HIT)',
  '`touch HIT`',
  ';touch HIT',
  "';touch HIT;'",
  '";touch HIT;"',
  '|touch HIT|',
  '&touch HIT&',
  '>HIT',
  '${HOME}',
  '\\$(touch HIT)\\',
  '# x',
  '-x',
  '*',
  '{a,b}',
  '!!',
  '%n',
  '{name}',
  '1e3',
  'y',
  '~',
  ': - [',
  "'",
  '"',
  '\\',
)
_CONTROLS = ('a\ntouch HIT', 'a\r\ntouch HIT', 'a\0b', '\x1b[2J', '\u2028x')
_TEXT = strategies.one_of(
  strategies.sampled_from(_ATTACKS),
  strategies.text(
    strategies.characters(
      exclude_categories=['Cc', 'Cs', 'Zl', 'Zp'], max_codepoint=0x2FFF
    ),
    min_size=1,
    max_size=12,
  ),
  strategies.lists(
    strategies.sampled_from(_ATTACKS), min_size=2, max_size=3
  ).map(''.join),
)
_SETTINGS = hypothesis.settings(
  max_examples=15,
  deadline=None,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


_GCLOUD = """#!/bin/bash
case "$*" in *describe*) echo ACTIVE; exit ;; esac
for word; do
  case $word in --command=*) exec bash -c "${word#--command=}" ;; esac
done
printf "%s\\0" "$@" >> "$NOTES/notes"
"""


def _command(value):
  return ('train', f'--gin.A={value}', f'--model_dir=runs/{value}')


class _Shell:
  """Runs rendered scripts with stubs that note their arguments."""

  def __init__(self, folder: pathlib.Path, *programs: str):
    self.folder = folder
    for name in programs:
      path = folder / name
      path.write_text(
        f'#!/bin/bash\nprintf "%s\\0" {name} "$@" >> "$NOTES/notes"\n'
      )
      path.chmod(0o755)
    (folder / 'work').mkdir()

  def __call__(self, script: str, **environment) -> list[str]:
    """The words that programs were called with; nothing else ran."""
    notes = self.folder / 'notes'
    notes.unlink(missing_ok=True)
    subprocess.run(['bash', '-n'], input=script.encode(), check=True)
    subprocess.run(
      ['bash', '-c', script],
      check=False,
      capture_output=True,
      stdin=subprocess.DEVNULL,
      cwd=self.folder / 'work',
      env={
        'PATH': f'{self.folder}:/usr/bin:/bin',
        'HOME': str(self.folder / 'work'),
        'NOTES': str(self.folder),
      }
      | environment,
      timeout=20,
    )
    assert not list(self.folder.rglob('HIT*'))
    return notes.read_text().split('\0')[:-1] if notes.exists() else []


_REQUIRED = {
  slurm.SlurmJob: {},
  local.LocalJob: {'num_processes': 1},
  kubernetes.KubernetesJob: {'name': 'a', 'image': 'b'},
  tpu.TpuJob: {
    'name': 'a',
    'zone': 'z',
    'accelerator_type': 'v5litepod-16',
    'runtime_version': 'v2',
  },
}


def _textual(kind) -> list[str]:
  """Names of a job's fields that hold text."""
  return [
    field.name
    for field in dataclasses.fields(kind)
    if field.type in (str, str | None)
  ]


def _with(kind, name, value):
  """A job whose field `name` holds a value, wherever the field has text."""
  holder = {
    'command': _command(value),
    'more': (f'--comment={value}',),
    'pull_secrets': (value,),
    'tolerations': (kubernetes_settings.Toleration(key='a', value=value),),
    'volumes': (
      kubernetes_settings.Volume(source='host', name=value, path='/x'),
    ),
  } | {n: pathlib.Path(value) for n in ('logs', 'sweep')}
  mappings = ('env', 'labels', 'annotations', 'node_selector', 'resources')
  holder |= {n: {'A': value} for n in (*mappings, 'mounts')}
  holder |= {n: value for n in _textual(kind)}
  return kind(
    **{'command': ('train',)} | _REQUIRED[kind] | {name: holder[name]}
  )


@pytest.mark.parametrize('kind', _REQUIRED)
def test_control_characters_are_refused_in_every_field(kind):
  tried = 0
  for field in dataclasses.fields(kind):
    name = field.name
    if re.search(r'\b(int|float|bool)\b', str(field.type)) or name in (
      *(
        'kind',
        'process_per',
        'restart_by',
        'patches',
      ),  # choices, files that are read
      'program' if kind is local.LocalJob else '',  # is not rendered
    ):
      continue
    for value in _CONTROLS:
      if values.LINES in field.metadata and value == 'a\ntouch HIT':
        continue
      with pytest.raises(errors.ConfigError, match='control character') as e:
        _with(kind, name, value)
      assert f'Where: {name}.' in str(e.value)
      tried += 1
  assert tried >= 10


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_slurm_comment_is_one_line(value):
  """The printed script differs from the submitted one by comments only."""
  job = slurm.SlurmJob(
    command=_command(value),
    partition=value,
    account=value,
    time=value,
    logs=pathlib.Path('logs') / value,
    more=(f'--comment={value}',),
  )
  comment, second, rest = job.rendered().split('\n', 2)
  assert comment.startswith('# ') and second.startswith('# ')
  assert rest == slurm.SCRIPT


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_slurm_line_as_it_would_be_pasted(tmp_path_factory, value):
  shell = _Shell(tmp_path_factory.mktemp('slurm'), 'sbatch')
  job = slurm.SlurmJob(
    command=_command(value), account=value, more=(f'--comment={value}',)
  )
  line = job.rendered().split('\n')[0].removeprefix('# ')
  assert shell(line) == job.sbatch('train.sbatch')


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_slurm_script_passes_words_on(tmp_path_factory, value):
  shell = _Shell(tmp_path_factory.mktemp('slurm'), 'srun')
  words = _command(value)
  script = f'set -- {slurm.shlex.join(words)}\n{slurm.SCRIPT}'
  noted = shell(script, SLURM_JOB_ID='1')
  assert noted[3:] == ['xlflax', *words, '--stopped_status=75']


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_line_of_a_sweep_is_words_not_code(tmp_path_factory, value):
  folder = tmp_path_factory.mktemp('sweep')
  shell = _Shell(folder, 'srun')
  quoted = slurm.shlex.join([f'--gin.A={value}', f'--model_dir={value}'])
  sweep = folder / 'sweep.txt'
  sweep.write_text(f'--a=1\n{quoted}\n')
  noted = shell(
    f'set -- train\n{slurm.SCRIPT}',
    SLURM_JOB_ID='1',
    SLURM_ARRAY_TASK_ID='2',
    XLFLAX_SWEEP=str(sweep),
  )
  assert noted[5:7] == [f'--gin.A={value}', f'--model_dir={value}']


@pytest.mark.parametrize(
  'attack', ['$(touch HIT)', '`touch HIT`', ';touch HIT']
)
def test_unquoted_line_of_a_sweep_runs_nothing(tmp_path, attack):
  shell = _Shell(tmp_path, 'srun')
  (tmp_path / 'sweep.txt').write_text(f'--model_dir={attack}\n')
  noted = shell(
    f'set -- train\n{slurm.SCRIPT}',
    SLURM_JOB_ID='1',
    SLURM_ARRAY_TASK_ID='1',
    XLFLAX_SWEEP=str(tmp_path / 'sweep.txt'),
  )
  assert noted[5:-1] == f'--model_dir={attack}'.split()


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_local_lines(tmp_path_factory, value):
  folder = tmp_path_factory.mktemp('local')
  shell = _Shell(folder, 'xlflax')
  name = value.replace('/', '_')
  job = local.LocalJob(
    command=('train', f'--gin.A={value}'),
    num_processes=1,
    cpu_devices=1,
    logs=pathlib.Path(f'x{name}'),
  )
  (folder / 'work' / f'x{name}').mkdir()
  assert shell(job.rendered()) == ['xlflax', *job.arguments(0, 12345)]
  assert (folder / 'work' / f'x{name}' / 'process_0.log').exists()


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_tpu_script(tmp_path_factory, value):
  folder = tmp_path_factory.mktemp('tpu')
  shell = _Shell(folder, 'gcloud', 'xlflax')
  # Every worker's command runs here; the resource is there.
  (folder / 'gcloud').write_text(_GCLOUD)
  job = tpu.TpuJob(
    command=_command(value),
    name='mlm',
    zone=value,
    accelerator_type=value,
    runtime_version=value,
    project=value,
    setup='true',
    program='xlflax',
    restarts=0,
    poll_seconds=0,
  )
  noted = shell(job.rendered())
  assert noted[: len(job.command) + 1] == ['xlflax', *job.command]
  assert noted[-4:] == [
    f'--zone={value}',
    f'--project={value}',
    '--force',
    '--quiet',
  ]


@pytest.mark.parametrize('kind', [tpu.TpuJob, kubernetes.KubernetesJob])
def test_images(kind):
  attacks = set(_ATTACKS) - {'1e3', 'y'}
  for image in [*attacks, 'a b', '--volume=/:/host', '']:
    with pytest.raises(errors.ConfigError, match='The image is not usable'):
      kind(**{'command': ('train',)} | _REQUIRED[kind] | {'image': image})


@pytest.mark.parametrize('name', ['--flags-file=x', 'a b', 'A', '$(x)', ''])
def test_names_of_tpus(name):
  with pytest.raises(errors.ConfigError, match='name is not usable'):
    tpu.TpuJob(
      **{'command': ('train',)} | _REQUIRED[tpu.TpuJob] | {'name': name}
    )


def _expanded(text: str) -> str:
  """What Kubernetes makes of `$` in commands and variables; no variable set."""
  result, i = '', 0
  while i < len(text):
    if text[i] != '$' or i + 1 == len(text):
      result, i = result + text[i], i + 1
    elif text[i + 1] == '$':
      result, i = result + '$', i + 2
    elif text[i + 1] == '(' and ')' in text[i:]:
      result, i = result + 'EXPANDED', text.index(')', i) + 1
    else:
      result, i = result + text[i : i + 2], i + 2
  return result


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_kubernetes_manifest(value):
  job = kubernetes.KubernetesJob(
    command=_command(value),
    name='mlm',
    image='registry/xlflax:gpu',
    env={'A': value, 'B': f'{value}\n{value}'},
    annotations={'a': value},
    labels={'l': value},
    node_selector={'n': value},
    namespace=value,
    queue=value,
    priority_class=value,
    service_account=value,
    memory=value,
    kind='job',
  )
  text = job.rendered()
  service, manifest = yaml.safe_load_all(text)
  template = manifest['spec']['template']
  container = template['spec']['containers'][0]
  assert [_expanded(w) for w in container['command'][1:4]] == [*_command(value)]
  env = {v['name']: v.get('value') for v in container['env']}
  assert _expanded(env['A']) == value
  assert _expanded(env['B']) == f'{value}\n{value}'
  assert template['metadata']['annotations']['a'] == value
  assert template['spec']['nodeSelector'] == {'n': value}
  assert template['spec']['priorityClassName'] == value
  assert template['spec']['serviceAccountName'] == value
  assert container['resources']['limits']['memory'] == value
  assert service['metadata']['namespace'] == value
  assert manifest['metadata']['labels']['kueue.x-k8s.io/queue-name'] == value


@pytest.mark.parametrize('value', ['1e3', 'y', 'N', '0o17', '1_0', '12e03'])
def test_yaml_of_other_readers(value):
  """Readers of YAML 1.2 and of Go take these for numbers and booleans."""
  job = kubernetes.KubernetesJob(
    command=('train',), env={'A': value}, **_REQUIRED[kubernetes.KubernetesJob]
  )
  assert f": '{value}'\n" in job.rendered()


@pytest.mark.parametrize('name', ['A;touch HIT', 'A B', '1A', '$(x)'])
def test_names_of_variables(name):
  required = _REQUIRED[kubernetes.KubernetesJob]
  with pytest.raises(errors.ConfigError, match='no name of a variable'):
    kubernetes.KubernetesJob(command=('train',), env={name: '1'}, **required)


def test_names_of_slurm():
  for fields in ({'job_name': '../../x'}, {'more': ('other.sh',)}):
    with pytest.raises(errors.ConfigError):
      slurm.SlurmJob(command=('train',), **fields)
  job = slurm.SlurmJob(command=('train',), logs=pathlib.Path('a%u'))
  assert '--output=a%%u/%x_%j.log' in job.sbatch('s')
