"""Signals end a command in order, or its process immediately."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from xlflax.utils import signals

_BEGIN = """
import os, signal, sys, time
from xlflax.utils import process_exit, signals
process_exit.start_command()
"""


def _start(code: str) -> subprocess.Popen:
  """Starts a process that has printed 'ready' on return."""
  process = subprocess.Popen(
    [sys.executable, '-c', _BEGIN + textwrap.dedent(code)],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'ready\n'
  return process


def _end(process: subprocess.Popen, number: int) -> tuple[int, str, str]:
  process.send_signal(number)
  out, err = process.communicate(timeout=60)
  return process.returncode, out, err


@pytest.mark.parametrize('name', ['SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGINT'])
def test_what_is_open_is_closed(name):
  process = _start("""
    signals.start_command()
    try:
      print('ready', flush=True)
      time.sleep(60)
    except signals.Stopped as error:
      print(error.number.name)
    finally:
      print('closed')
  """)
  assert _end(process, signal.Signals[name]) == (0, f'{name}\nclosed\n', '')


def test_foreign_code_that_blocks_is_ended():
  """The call returns to Python only after the grace period."""
  process = _start("""
    import hashlib, threading
    signals._GRACE_SECONDS = 0.2
    signals.start_command()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    print('ready', flush=True)
    hashlib.pbkdf2_hmac('sha256', b'', b'', 200_000_000)
  """)
  _, err = process.communicate(timeout=60)
  assert process.returncode == 130
  assert err.startswith('xlflax: SIGTERM: ') and err.count('\n') == 1


def test_a_signal_waits_for_the_initialization_of_an_extension_module():
  process = _start("""
    from importlib import machinery
    class Loader(machinery.ExtensionFileLoader):
      def create_module(self, spec):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        print('initialized')
    signals.start_command()
    print('ready', flush=True)
    try:
      Loader('module', 'module.so').create_module(None)
      print('imported')
      time.sleep(60)
    except signals.Stopped as error:
      print(error.number.name)
  """)
  out, err = process.communicate(timeout=60)
  assert (out, err) == ('initialized\nimported\nSIGTERM\n', '')


def test_after_the_end_the_status_is_kept():
  process = _start("""
    signals.start_command()
    signals.end_command(0)
    print('ready', flush=True)
    time.sleep(60)
  """)
  assert _end(process, signal.SIGTERM)[0] == 0


def test_the_status_is_kept_while_the_process_exits():
  """Foreign code exits after Python has removed its handlers."""
  code = """
    import ctypes
    libc = ctypes.CDLL(None)
    libc['__cxa_atexit'](libc['raise'], signal.SIGTERM, None)
    signals.start_command()
    print('a result')
    signals.end_command(0)
  """
  done = subprocess.run(
    [sys.executable, '-c', _BEGIN + textwrap.dedent(code)],
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert (done.returncode, done.stdout) == (0, 'a result\n')


def test_a_hangup_that_is_ignored_stays_ignored():
  """As with `nohup xlflax ...`."""
  process = _start("""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals.start_command()
    print('ready', flush=True)
    time.sleep(1)
    print('went on')
  """)
  assert _end(process, signal.SIGHUP) == (0, 'went on\n', '')


def test_children_end_by_signals_as_ever():
  process = _start("""
    signals.start_command()
    print('ready', flush=True)
    child = os.fork()
    if not child:
      time.sleep(60)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    time.sleep(60)
  """)
  assert process.stdout.readline() == f'{-signal.SIGTERM}\n'
  process.kill()
  process.communicate()


def test_a_signal_that_came_too_late_is_followed_next():
  signals.check_stop_request()
  signals.note_signal(signal.SIGTERM)
  try:
    with pytest.raises(signals.Stopped, match='SIGTERM') as raised:
      signals.check_stop_request()
  finally:
    signals.note_signal(None)
  assert signals.describe_stop(raised.value) == 'stopped by SIGTERM'
  assert signals.describe_stop(KeyboardInterrupt()) == 'interrupted'
  assert signals.pending_signal() is None


def test_outside_of_commands_the_callers_handler_gets_it():
  signals_received = []
  before = signal.signal(
    signal.SIGUSR1, lambda n, _: signals_received.append(n)
  )
  try:
    signals.pass_on_signal(None, followed=False)
    signals.pass_on_signal(signal.SIGTERM, followed=True)
    signals.pass_on_signal(signal.SIGUSR1, followed=False)
  finally:
    signal.signal(signal.SIGUSR1, before)
  assert (
    signals_received == [signal.SIGUSR1] and signals.pending_signal() is None
  )


def test_another_thread_hears_at_once():
  heard = []
  before = signal.signal(signal.SIGUSR1, lambda *_: None)
  try:
    with signals.listen_for_signals(heard.append):
      os.kill(os.getpid(), signal.SIGUSR1)
      end = time.monotonic() + 10
      while not heard and time.monotonic() < end:
        time.sleep(0.01)
  finally:
    signal.signal(signal.SIGUSR1, before)
  assert heard == [signal.SIGUSR1]
