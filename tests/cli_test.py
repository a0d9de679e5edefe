"""Tests of the `xlflax` command: help, exit codes and error messages."""

import errno
import json
import logging
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import xlflax
from tests.errors import assert_mentions
from xlflax import cli
from xlflax.cli import train
from xlflax.utils import errors, signals


@pytest.fixture(autouse=True)
def handlers():
  """Restores the logging setup that commands change."""
  root = logging.getLogger()
  before, level = root.handlers[:], root.level
  yield
  root.handlers[:] = before
  root.setLevel(level)


def _run(*arguments) -> int:
  """Returns the exit status of the process."""
  try:
    return cli.main(arguments)
  except SystemExit as stop:
    return stop.code


@pytest.fixture
def failing(monkeypatch):
  """Fixture that makes `xlflax train` raise an error."""

  def install(error):
    def run(options):
      raise error

    monkeypatch.setattr(train, '_train_or_plan', run)

  return install


@pytest.mark.parametrize(
  'argument', ['--model_dir=runs/\udcff', '--model_dir=runs/a\r']
)
@pytest.mark.parametrize('command', ['train', 'evaluate', 'inspect', 'convert'])
def test_arguments_with_invalid_characters_are_rejected(
  capsys, command, argument
):
  assert cli.main([command, argument]) == errors.ExitStatus.MISTAKE
  assert 'runs/' in capsys.readouterr().err


@pytest.mark.parametrize('flag', ['--help', '-h'])
def test_help_lists_all_commands(capsys, flag):
  assert _run(flag) == 0
  out = capsys.readouterr().out
  for name, text in cli.COMMANDS.items():
    assert f'  {name} ' in out and f' {text}\n' in out


def test_missing_command_exits_with_status_2(capsys):
  assert _run() == 2
  assert 'usage: xlflax COMMAND' in capsys.readouterr().out


def test_unknown_command_is_rejected(capsys):
  assert _run('trian') == 2
  captured = capsys.readouterr()
  assert captured.err.startswith(
    "xlflax: Unknown command: 'trian'. Did you mean train or pretrain?"
  )
  assert 'train' in captured.err and not captured.out


def test_version_is_printed(capsys):
  assert _run('--version') == 0
  assert capsys.readouterr().out.strip() == xlflax.__version__


def test_quiet_hides_progress(capsys, monkeypatch):
  """Results, warnings and errors are still printed."""
  logger = logging.getLogger()
  monkeypatch.setattr(logger, 'handlers', logger.handlers[:])
  assert cli.main(['--quiet', 'configs', 'list', 'models/*']) == 0
  assert 'models/small.gin' in capsys.readouterr().out
  assert not logger.isEnabledFor(logging.INFO)
  assert cli.main(['configs', 'list', 'models/*']) == 0
  assert logger.isEnabledFor(logging.INFO)
  assert cli.main(['--quiet']) == 2


@pytest.mark.parametrize('name', cli.COMMANDS)
def test_help_of_each_command(capsys, name):
  assert _run(name, '--help') == 0
  out = capsys.readouterr().out
  assert f'usage: xlflax {name}' in out.lower()
  examples = out.lower().partition('examples:\n')[2]
  assert f'xlflax {name}' in examples


@pytest.mark.parametrize('name', cli.COMMANDS)
def test_unknown_flag_is_rejected(capsys, name):
  assert _run(name, '--no_such_flag') == 2
  err = capsys.readouterr().err
  assert err.startswith(f'xlflax {name}: ') and err.count('\n') == 1


def test_user_error_is_one_message_without_traceback(capsys, failing):
  failing(
    errors.CorpusError(
      'No text', got='nothing', where='a.txt:3', fix='add some'
    )
  )
  assert _run('train') == 2
  captured = capsys.readouterr()
  assert captured.err == (
    'xlflax train: No text. Got: nothing. Where: a.txt:3. What to do: add '
    'some.\n'
  )
  assert not captured.out


def test_out_of_memory_is_one_message(capsys, failing):
  failing(RuntimeError('RESOURCE_EXHAUSTED: Out of memory while trying 9 GiB'))
  assert _run('train') == 74
  captured = capsys.readouterr()
  assert captured.err.startswith(
    'xlflax train: A device is out of memory. Got: Out of memory while trying '
    '9 GiB. What to do: '
  )
  assert 'docs/trouble.md#out-of-memory' in captured.err


def test_user_error_as_json(capsys, failing, monkeypatch):
  logger = logging.getLogger()
  monkeypatch.setattr(logger, 'handlers', logger.handlers[:])
  failing(errors.CorpusError('No text', where='a.txt:3'))
  assert cli.main(['train', '--json']) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert json.loads(line)['where'] == 'a.txt:3'


def test_internal_error_keeps_its_traceback(failing):
  failing(ZeroDivisionError('a bug'))
  with pytest.raises(ZeroDivisionError, match='a bug'):
    cli.main(['train'])


@pytest.mark.parametrize(
  ('number', 'expected_message'),
  [(errno.EACCES, 'ermission'), (errno.ENOSPC, 'space')],
)
def test_operating_system_errors_are_one_message(
  capsys, failing, number, expected_message
):
  failing(OSError(number, os.strerror(number), 'a/b.txt'))
  assert _run('train') != 0
  err = capsys.readouterr().err
  assert expected_message in err and 'a/b.txt' in err and err.count('\n') == 1


def test_keyboard_interrupt_exits_with_status_130(capsys, failing):
  failing(KeyboardInterrupt())
  assert _run('train') == 130
  assert capsys.readouterr().err == 'xlflax train: interrupted.\n'


def test_signal_without_state_to_save_is_reported(capsys, failing):
  failing(signals.Stopped(signal.SIGTERM))
  assert _run('train') == 130
  assert capsys.readouterr().err == 'xlflax train: stopped by SIGTERM.\n'


def test_signal_before_training_uses_the_preemption_exit_code(
  capsys, monkeypatch
):
  def run(options):
    raise signals.Stopped(signal.SIGUSR1)

  monkeypatch.setattr(train, '_train_or_plan', run)
  assert _run('train', '--preemption_exit_code=75') == 75
  assert _run('train') == 130
  assert capsys.readouterr().err == 2 * 'xlflax train: stopped by SIGUSR1.\n'


def _catches_sigterm(process_id: int) -> bool:
  status = pathlib.Path(f'/proc/{process_id}/status').read_text()
  mask = re.search(r'^SigCgt:\s*(\w+)', status, re.MULTILINE)[1]
  return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def test_first_process_of_a_container_handles_signals_before_importing_jax():
  """Linux drops signals that the first process does not handle."""
  unshare = ['unshare', '--map-root-user', '--pid', '--fork', '--kill-child']
  if (
    not shutil.which('unshare') or subprocess.run([*unshare, 'true']).returncode
  ):
    pytest.skip('PID namespaces are not available')
  command = [*unshare, sys.executable, '-m', 'xlflax.cli', 'train']
  with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
    children = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children')
    while not (process_ids := children.read_text().split()):
      time.sleep(0.001)
    [first] = map(int, process_ids)
    while not _catches_sigterm(first):
      time.sleep(0.001)
    maps = pathlib.Path(f'/proc/{first}/maps').read_text()
    os.kill(first, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
  assert 'jaxlib' not in maps
  assert process.returncode == 130, err
  assert err.endswith(': stopped by SIGTERM.\n') and err.count('\n') == 1


@pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')
def test_sigint_stops_a_background_process_of_a_script_while_it_starts():
  """Shells start such processes with SIGINT ignored."""
  command = '"$0" -m xlflax.cli train & echo $!; wait $!'
  with subprocess.Popen(
    ['bash', '-c', command, sys.executable],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    process_id = int(process.stdout.readline())
    while not _catches_sigterm(process_id):
      time.sleep(0.001)
    os.kill(process_id, signal.SIGINT)
    _, err = process.communicate(timeout=60)
  assert process.returncode == 130, err
  assert err.endswith(': interrupted.\n') and err.count('\n') == 1


def test_broken_pipe_ends_commands_that_only_print():
  """They end silently. Commands that write results to disk continue."""
  for command_line, status in (('configs list', 130), ('--help', 0)):
    result = subprocess.run(
      [
        'bash',
        '-c',
        f'"$0" -m xlflax.cli {command_line} | true; echo $PIPESTATUS',
      ]
      + [sys.executable],
      capture_output=True,
      text=True,
      check=False,
    )
    assert (result.stdout, result.stderr) == (f'{status}\n', '')


def test_configuration_error_is_one_message(capsys):
  assert (
    _run(
      'train',
      '--gin_file=pretrain/mlm.gin',
      '--model_dir=runs/a',
      '--gin_file=models/tiny.gin',
      '--vocabulary=v',
    )
    == 2
  )
  err = capsys.readouterr().err
  assert err.count('\n') == 1
  assert (
    'a value for TRAIN_STEPS. What to do: Pass --gin.TRAIN_STEPS=VALUE.' in err
  )


def test_binding_without_value_is_rejected(capsys):
  assert _run('train', '--gin.TRAIN_STEPS') == 2
  assert 'Got: --gin.TRAIN_STEPS.' in capsys.readouterr().err


def test_bindings_of_a_command_without_gin_are_rejected(capsys):
  assert _run('tasks', '--gin.A=1', 'list') == 2
  assert_mentions(capsys.readouterr().err, '--gin.A=1')


def test_process_exits_with_one_message():
  """Configuration errors do not import TensorFlow."""
  result = subprocess.run(
    [
      sys.executable,
      '-c',
      'import sys; from xlflax import cli; '
      'code = cli.main(["train", "--gin_file=nope.gin"]); '
      'assert "tensorflow" not in sys.modules; sys.exit(code)',
    ],
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 2
  assert 'The gin file does not exist. Got: nope.gin' in result.stderr
  assert 'Traceback' not in result.stderr and not result.stdout


def test_closed_output_pipe_is_not_an_error():
  """Commands such as `xlflax ... --dry_run | head -1` report no broken pipe."""
  pipe = 'set -o pipefail; "$0" -m xlflax.cli launch local --nproc_per_node=99 '
  pipe += '--cpu_devices=1 --dry_run -- train --model_dir=r --gin.A="$(printf %9999d 1)"'
  result = subprocess.run(
    ['bash', '-c', f'{pipe} | head -c 9', sys.executable],
    capture_output=True,
    text=True,
    check=False,
  )
  assert (result.stdout, result.stderr) == ('JAX_PLATF', '')
  assert result.returncode == 0


def test_command_processes_reduce_garbage_collection():
  process = subprocess.run(
    [
      sys.executable,
      '-c',
      'import gc; from xlflax import cli; '
      'from xlflax.utils import process_exit; cli.start_process(); '
      'assert process_exit.is_command(); print(gc.get_threshold()[0])',
    ],
    capture_output=True,
    text=True,
    check=True,
  )
  assert int(process.stdout) > 10 * 700


def _run_in_command(code: str) -> subprocess.CompletedProcess:
  """Returns the output of a command process that runs `code`."""
  lines = [
    'import dataclasses, sys, types',
    'from xlflax import cli',
    '@dataclasses.dataclass',
    'class Options:',
    '  """Options."""',
    'def main(options: Options):',
    textwrap.indent(textwrap.dedent(code), '  '),
    'module = types.ModuleType("xlflax.cli.verify")',
    'module.main = main',
    'cli.load_command = lambda name: module',
    'sys.argv = ["xlflax", "verify"]',
    'sys.exit(cli.main())',
  ]
  return subprocess.run(
    [sys.executable, '-c', '\n'.join(lines)],
    capture_output=True,
    text=True,
    check=False,
  )


def test_failed_event_loop_reports_no_second_error():
  process = _run_in_command("""
    import asyncio, resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
    held = []
    try:
      while True:
        held.append(open('/dev/null'))
    except OSError:
      pass
    try:
      asyncio.new_event_loop()
    except OSError:
      print('printed')
  """)
  assert (process.stdout, process.stderr) == ('printed\n', '')


def test_signal_after_the_end_is_ignored():
  """The signal arrives after the status is set and before it is returned."""
  code = """
    import os, signal, sys
    from xlflax import cli
    from xlflax.utils import signals
    plain = signals.end_command
    def end(status):
      signals.end_command = plain
      os.kill(os.getpid(), signal.SIGTERM)
      plain(status)
    signals.end_command = end
    cli._run_command = lambda name, arguments, level: 3
    sys.argv = ['xlflax', 'train']
    sys.exit(cli.main())
  """
  process = subprocess.run(
    [sys.executable, '-c', textwrap.dedent(code)],
    capture_output=True,
    text=True,
    check=False,
  )
  assert (process.returncode, process.stderr) == (3, '')


def test_signal_in_a_finalizer_stops_the_command_with_one_message():
  process = _run_in_command("""
    import os, signal, time, weakref
    class Thing:
      pass
    thing = Thing()
    held = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    del thing
    time.sleep(30)
    print('lost')
  """)
  assert (process.returncode, process.stdout) == (130, '')
  assert process.stderr == 'xlflax verify: stopped by SIGTERM.\n'


@pytest.mark.parametrize('error', ['ImportError', 'errors.ConfigError'])
def test_signal_converted_to_another_error_stops_the_command(error):
  """Extension modules raise ImportError if their initialization is stopped."""
  process = _run_in_command(f"""
    import os, signal, time
    from xlflax.utils import errors
    try:
      os.kill(os.getpid(), signal.SIGTERM)
      time.sleep(30)
    except KeyboardInterrupt:
      raise {error}('The initialization failed') from None
  """)
  assert (process.returncode, process.stdout) == (130, '')
  assert process.stderr == 'xlflax verify: stopped by SIGTERM.\n'


def test_help_fits_a_terminal(capsys, monkeypatch):
  monkeypatch.setenv('COLUMNS', '80')
  assert cli.main(['pretrain', '--help']) == 0
  printed = capsys.readouterr().out
  assert max(map(len, printed.splitlines())) <= 80


def test_commands_and_descriptions_are_aligned():
  lines = [line for line in cli._overview().splitlines() if line[:2] == '  ']
  texts = {line.index(cli.COMMANDS[line.split()[0]]) for line in lines}
  assert len(texts) == 1
