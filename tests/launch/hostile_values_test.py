"""Hostile values in rendered launcher files are passed on, never executed."""

import dataclasses
import pathlib
import re
import subprocess

import hypothesis
import pytest
import yaml
from hypothesis import strategies

from tests.errors import raises_error
from xlflax.launch import job_base, kubernetes, local, slurm, tpu
from xlflax.utils import errors

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
  """Runs rendered scripts with stubs that record their arguments."""

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
    """Runs a script and returns the arguments of the called programs."""
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
  local.LocalJob: {'nproc_per_node': 1},
  kubernetes.KubernetesJob: {'name': 'a', 'image': 'b'},
  tpu.TpuJob: {
    'name': 'a',
    'zone': 'z',
    'accelerator_type': 'v5litepod-16',
    'runtime_version': 'v2',
  },
}


def _text_fields(kind) -> list[str]:
  """Returns the names of a job's text fields."""
  return [
    field.name
    for field in dataclasses.fields(kind)
    if field.type in (str, str | None)
  ]


def _make_job(kind, name, value):
  """Returns a job with a value in each text position of the field `name`."""
  values = {
    'command': _command(value),
    'sbatch_arg': (f'--comment={value}',),
    'create_arg': (f'--labels=a={value}',),
    'pull_secret': (value,),
    'gke_network': (value,) * 8,
    'toleration': (f'a={value}',),
    'volume': (f'host:{value}:/x',),
    'secret_env': (f'A={value}:key',),
    'logs': pathlib.Path(value),
    'sweep': pathlib.Path(value),
    'template': pathlib.Path(value),
  }
  pairs = ('env', 'label', 'annotation', 'node_selector', 'resource')
  values |= {n: (f'A={value}',) for n in pairs}
  values |= {n: value for n in _text_fields(kind)}
  return kind(
    **{'command': ('train',)} | _REQUIRED[kind] | {name: values[name]}
  )


@pytest.mark.parametrize('kind', _REQUIRED)
def test_control_characters_are_rejected_in_every_field(kind):
  tried = 0
  for field in dataclasses.fields(kind):
    name = field.name
    if re.search(r'\b(int|float|bool)\b', str(field.type)) or name in (
      'manifest',
      'gpu_network',
      'restart_policy',
      'program',  # This field is not rendered.
    ):
      continue
    for value in _CONTROLS:
      if job_base.MULTILINE in field.metadata and value == 'a\ntouch HIT':
        continue
      with pytest.raises(errors.ConfigError) as raised:
        _make_job(kind, name, value)
      assert raised.value.where == name
      tried += 1
  assert tried >= 10


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_slurm_directives_are_safe_or_rejected(value):
  """A value that sbatch could split or read as a comment is an error."""
  try:
    job = slurm.SlurmJob(
      command=('train',), partition=value, sbatch_arg=(f'--comment={value}',)
    )
  except errors.ConfigError as error:
    assert error.where in ('--partition', '--sbatch_arg')
    return
  script = job.render()
  assert f'\n#SBATCH --partition={value}\n' in script
  assert not set(value) & set(' \t\'"\\#$`;<>')


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_slurm_script_passes_arguments_unchanged(tmp_path_factory, value):
  shell = _Shell(tmp_path_factory.mktemp('slurm'), 'srun')
  arguments = _command(value)
  job = slurm.SlurmJob(command=arguments, env=(f'A={value}',))
  recorded = shell(job.render(), SLURM_JOB_ID='1')
  assert recorded[3:] == ['xlflax', *arguments, job_base.PREEMPTION_FLAG]


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_sweep_line_is_not_evaluated_as_code(tmp_path_factory, value):
  folder = tmp_path_factory.mktemp('sweep')
  shell = _Shell(folder, 'srun')
  quoted = slurm.shlex.join([f'--gin.A={value}', f'--model_dir={value}'])
  sweep = folder / 'sweep.txt'
  sweep.write_text(f'--a=1\n{quoted}\n')
  job = slurm.SlurmJob(command=('train',), sweep=sweep)
  recorded = shell(job.render(), SLURM_JOB_ID='1', SLURM_ARRAY_TASK_ID='2')
  assert recorded[5:7] == [f'--gin.A={value}', f'--model_dir={value}']


@pytest.mark.parametrize('end', ['\n', '\r\n', '\r'])
@pytest.mark.parametrize('bom', ['', '\ufeff'])
@pytest.mark.parametrize('last', ['', 'END', 'ENDEND'])
def test_sweep_files_support_all_line_endings(tmp_path, end, bom, last):
  sweep = tmp_path / 'sweep.txt'
  text = f'{bom}--a=1 --model_dir=1END END--a=2 --model_dir=2{last}'
  sweep.write_bytes(text.replace('END', end).encode())
  job = slurm.SlurmJob(command=('train',), sweep=sweep)
  assert '#SBATCH --array=1,3\n' in job.render()
  for task in (1, 3):
    folder = tmp_path / str(task)
    folder.mkdir()
    recorded = _Shell(folder, 'srun')(
      job.render(), SLURM_JOB_ID='1', SLURM_ARRAY_TASK_ID=str(task)
    )
    value = (task + 1) // 2
    assert recorded[5:7] == [f'--a={value}', f'--model_dir={value}']
  folder = tmp_path / 'past the end'
  folder.mkdir()
  assert not _Shell(folder, 'srun')(
    job.render(), SLURM_JOB_ID='1', SLURM_ARRAY_TASK_ID='9'
  )


@pytest.mark.parametrize(
  'attack', ['$(touch HIT)', '`touch HIT`', ';touch HIT']
)
def test_unquoted_sweep_line_is_not_evaluated(tmp_path, attack):
  shell = _Shell(tmp_path, 'srun')
  (tmp_path / 'sweep.txt').write_text(f'--model_dir={attack}\n')
  job = slurm.SlurmJob(command=('train',), sweep=tmp_path / 'sweep.txt')
  noted = shell(job.render(), SLURM_JOB_ID='1', SLURM_ARRAY_TASK_ID='1')
  assert noted[5:-1] == f'--model_dir={attack}'.split()


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_local_commands_pass_arguments_unchanged(tmp_path_factory, value):
  folder = tmp_path_factory.mktemp('local')
  shell = _Shell(folder, 'xlflax')
  name = value.replace('/', '_')
  job = local.LocalJob(
    command=('train', f'--gin.A={value}'),
    nproc_per_node=1,
    cpu_devices=1,
    logs=pathlib.Path(f'x{name}'),
  )
  (folder / 'work' / f'x{name}').mkdir()
  assert shell(job.render()) == ['xlflax', *job.arguments(0, 'localhost:12345')]
  assert (folder / 'work' / f'x{name}' / 'process_0.log').exists()


@_SETTINGS
@hypothesis.given(value=_TEXT)
def test_tpu_script_passes_arguments_unchanged(tmp_path_factory, value):
  folder = tmp_path_factory.mktemp('tpu')
  shell = _Shell(folder, 'gcloud', 'xlflax')
  # This gcloud runs the commands of the workers locally.
  (folder / 'gcloud').write_text(_GCLOUD)
  job = tpu.TpuJob(
    command=_command(value),
    name='mlm',
    zone=value,
    accelerator_type='v4-8',
    runtime_version=value,
    project=value,
    setup_command='true',
    entrypoint='xlflax',
    network=value,
    env=(f'A={value}',),
    max_restarts=0,
    poll_seconds=0,
  )
  noted = shell(job.render())
  assert noted[: len(job.command) + 1] == ['xlflax', *job.command]
  assert noted[-4:] == [
    f'--zone={value}',
    f'--project={value}',
    '--force',
    '--quiet',
  ]


@pytest.mark.parametrize('kind', [tpu.TpuJob, kubernetes.KubernetesJob])
def test_invalid_image_names_are_rejected(kind):
  attacks = set(_ATTACKS) - {'1e3', 'y'}
  for image in [*attacks, 'a b', '--volume=/:/host', '']:
    with raises_error(errors.ConfigError, got=image, mentions='--image'):
      kind(**{'command': ('train',)} | _REQUIRED[kind] | {'image': image})


@pytest.mark.parametrize('name', ['--flags-file=x', 'a b', 'A', '$(x)', ''])
def test_invalid_tpu_names_are_rejected(name):
  with raises_error(errors.ConfigError, got=name, mentions='--name'):
    tpu.TpuJob(
      **{'command': ('train',)} | _REQUIRED[tpu.TpuJob] | {'name': name}
    )


def _expanded(text: str) -> str:
  """Returns the result of Kubernetes' `$` expansion without variables."""
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
def test_kubernetes_manifest_passes_values_unchanged(value):
  job = kubernetes.KubernetesJob(
    command=_command(value),
    name='mlm',
    image='registry/xlflax:gpu',
    env=(f'A={value}', f'B={value}\n{value}'),
    annotation=(f'a={value}',),
    label=(f'l={value}',),
    node_selector=(f'n={value}',),
    namespace=value,
    queue=value,
    priority_class=value,
    service_account=value,
    memory=value,
    manifest='job',
  )
  text = job.render()
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
def test_values_of_other_yaml_versions_are_quoted(value):
  """YAML 1.2 and Go would parse the unquoted values as non-strings."""
  job = kubernetes.KubernetesJob(
    command=('train',),
    env=(f'A={value}',),
    **_REQUIRED[kubernetes.KubernetesJob],
  )
  assert f'value: "{value}"' in job.render()


@pytest.mark.parametrize('name', ['A;touch HIT', 'A B', '1A', '$(x)'])
@pytest.mark.parametrize(
  'kind', [kubernetes.KubernetesJob, slurm.SlurmJob, tpu.TpuJob]
)
def test_invalid_variable_names_are_rejected(kind, name):
  with pytest.raises(errors.ConfigError) as raised:
    kind(command=('train',), env=(f'{name}=1',), **_REQUIRED[kind])
  assert raised.value.where == '--env'


def test_percent_signs_in_log_names_are_escaped():
  job = slurm.SlurmJob(command=('train',), logs=pathlib.Path('a%u'))
  assert '#SBATCH --output=a%%u/%x_%j.log\n' in job.render()
