"""Tests of training with environment variables that libraries read.

Each run has variables with unusual but legal values. Its losses are equal to
those of a run without these variables, or it ends with one error message.
"""

import json

import pytest

from tests.end_to_end import conftest
from xlflax.utils import errors

pytestmark = pytest.mark.slow
_NUM_STEPS = 3
_FLAGS = (
  *conftest.TINY_MLM,
  '--gin.trainer.Trainer.log_metrics_every=1',
  f'--gin.TRAIN_STEPS={_NUM_STEPS}',
)
_CLUSTER = {
  'cluster': {'worker': ['host0:1', 'host1:2']},
  'task': {'type': 'worker', 'index': 1},
}
# Address of a proxy that does not exist.
_PROXY = 'http://127.0.0.1:9'
# Variables that must not change the losses, by topic.
_VARIABLES = {
  'temporary directory': {'TMPDIR': '/no/such/directory'},
  'locale': {
    'LC_ALL': 'tr_TR.ISO-8859-9',
    'LANG': 'no_such_locale',
    'LC_NUMERIC': 'de_DE',
    'TZ': 'No/Where',
    'COLUMNS': '1',
  },
  'threads': {
    'OMP_NUM_THREADS': '1',
    'OPENBLAS_NUM_THREADS': '1',
    'MKL_NUM_THREADS': '1',
  },
  'Python': {
    'PYTHONASYNCIODEBUG': '1',
    'PYTHONDONTWRITEBYTECODE': '1',
    'PYTHONFAULTHANDLER': '1',
    'PYTHONHASHSEED': '12345',
    'PYTHONINTMAXSTRDIGITS': '640',
    'PYTHONIOENCODING': 'ascii:strict',
    'PYTHONNOUSERSITE': '1',
    'PYTHONOPTIMIZE': '1',
    'PYTHONPATH': '/no/such/directory',
    'PYTHONPYCACHEPREFIX': '/dev/null/cache',
    'PYTHONSAFEPATH': '1',
    'PYTHONUTF8': '0',
  },
  'Python without docstrings': {'PYTHONOPTIMIZE': '2'},
  'Python in development mode': {'PYTHONDEVMODE': '1'},
  'Python with warnings as errors': {'PYTHONWARNINGS': 'error'},
  'TensorFlow': {
    'TF_CONFIG': json.dumps(_CLUSTER),
    'TF_CPP_MIN_LOG_LEVEL': '0',
    'TF_DETERMINISTIC_OPS': '1',
    'TF_ENABLE_ONEDNN_OPTS': '1',
    'TF_FORCE_GPU_ALLOW_GROWTH': 'true',
    'TF_NUM_INTEROP_THREADS': '1',
    'TF_XLA_FLAGS': '--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit',
  },
}
# Topics that are tested without a token cache, so that TensorFlow is imported.
_LIVE_TOPICS = (
  'Python',
  'Python in development mode',
  'Python with warnings as errors',
  'TensorFlow',
)
# Variables that must not change the losses of two processes.
_CONNECTION_VARIABLES = {
  'proxies': {
    **dict.fromkeys(
      (
        'http_proxy',
        'https_proxy',
        'grpc_proxy',
        'all_proxy',
        'HTTP_PROXY',
        'HTTPS_PROXY',
        'ALL_PROXY',
      ),
      _PROXY,
    ),
    'no_proxy': 'example.org',
  },
  'gRPC': {
    'GRPC_DNS_RESOLVER': 'native',
    'GRPC_ENABLE_FORK_SUPPORT': '1',
    'GRPC_POLL_STRATEGY': 'poll',
    'GRPC_VERBOSITY': 'INFO',
  },
}
# Variables that end the run, the value in the error message, and the status.
_REJECTED = {
  'unknown platform': (
    {'JAX_PLATFORMS': 'abacus'},
    'abacus',
    errors.ExitStatus.MISTAKE,
  ),
  # XLA ends the process.
  'unknown XLA flag': (
    {'XLA_FLAGS': '--xla_no_such_flag=1'},
    'xla_no_such_flag',
    errors.ExitStatus.BUG,
  ),
  'data types': (
    {'JAX_ENABLE_X64': '1'},
    'JAX_ENABLE_X64',
    errors.ExitStatus.MISTAKE,
  ),
  'no docstrings': (
    {'PYTHONOPTIMIZE': '2'},
    'PYTHONOPTIMIZE',
    errors.ExitStatus.MISTAKE,
  ),
}


def _train(
  workspace, model_dir, *options, status=0, num_processes=1, **variables
):
  """Trains and returns the losses by step, and the output."""
  arguments = ['train', *_FLAGS, *workspace.inputs, f'--model_dir={model_dir}']
  arguments += options
  if num_processes > 1:
    arguments = [
      'launch',
      'local',
      f'--nproc_per_node={num_processes}',
      '--cpu_devices=1',
      '--',
      *arguments,
    ]
  output = workspace.run(*arguments, status=status, **variables)
  if status:
    return {}, output
  losses = {
    step: metrics['loss'].hex()
    for step, metrics in conftest.losses(model_dir).items()
  }
  assert list(losses) == list(range(1, _NUM_STEPS + 1))
  return losses, output


@pytest.fixture(scope='module')
def live_reference(workspace, tmp_path_factory):
  """Losses of a run that reads the corpus, without unusual variables."""
  model_dir = tmp_path_factory.mktemp('live_reference') / 'run'
  return _train(workspace, model_dir)[0]


@pytest.fixture(scope='module')
def reference(workspace, tmp_path_factory):
  """Losses of a run that reads a token cache, without unusual variables."""
  model_dir = tmp_path_factory.mktemp('reference') / 'run'
  return _train(workspace, model_dir, workspace.cache)[0]


@pytest.fixture(scope='module')
def reference_of_two_processes(workspace, tmp_path_factory):
  """Losses of a run of two processes without unusual variables."""
  model_dir = tmp_path_factory.mktemp('reference_of_two') / 'run'
  return _train(workspace, model_dir, workspace.cache, num_processes=2)[0]


@pytest.mark.parametrize(
  'topic', [topic for topic in _VARIABLES if topic not in _LIVE_TOPICS]
)
def test_variables_do_not_change_losses(workspace, tmp_path, reference, topic):
  losses, output = _train(
    workspace, tmp_path / 'run', workspace.cache, **_VARIABLES[topic]
  )
  assert losses == reference
  assert 'Traceback' not in output


@pytest.mark.parametrize('topic', _LIVE_TOPICS)
def test_variables_do_not_change_losses_with_tensorflow(
  workspace, tmp_path, live_reference, topic
):
  losses, output = _train(workspace, tmp_path / 'run', **_VARIABLES[topic])
  assert losses == live_reference
  assert 'Traceback' not in output


def test_xla_flags_file_does_not_change_losses(workspace, tmp_path, reference):
  flags = tmp_path / 'flags'
  flags.write_text(workspace.environment()['XLA_FLAGS'])
  losses, _ = _train(
    workspace, tmp_path / 'run', workspace.cache, XLA_FLAGS=str(flags)
  )
  assert losses == reference


@pytest.mark.parametrize('topic', _CONNECTION_VARIABLES)
def test_variables_do_not_change_losses_of_two_processes(
  workspace, tmp_path, reference_of_two_processes, topic
):
  losses, _ = _train(
    workspace,
    tmp_path / 'run',
    workspace.cache,
    num_processes=2,
    **_CONNECTION_VARIABLES[topic],
  )
  assert losses == reference_of_two_processes


@pytest.mark.parametrize('topic', _REJECTED)
def test_rejected_variables_end_the_run_with_an_error(
  workspace, tmp_path, topic
):
  variables, value, status = _REJECTED[topic]
  _, output = _train(workspace, tmp_path / 'run', status=status, **variables)
  assert value in output
  assert 'Traceback' not in output
  assert not (tmp_path / 'run/checkpoints').exists()
