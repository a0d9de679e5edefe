"""Tests of signals, which stop a command or exit its process."""

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
def test_signal_runs_finally_blocks(name):
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


def test_blocking_native_code_is_interrupted():
  """The native call does not return to Python within the grace period."""
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


def test_signal_is_deferred_while_an_extension_module_loads():
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


def test_signal_in_a_callback_whose_errors_are_ignored_stops_the_command():
  """Python calls such callbacks, for example, after each import."""
  process = _start("""
    import weakref
    class Lock: pass
    lock = Lock()
    callback = lambda _: os.kill(os.getpid(), signal.SIGTERM)
    reference = weakref.ref(lock, callback)
    signals.start_command()
    print('ready', flush=True)
    try:
      del lock
      time.sleep(60)
    except signals.Stopped as error:
      print(error.number.name)
  """)
  out, err = process.communicate(timeout=60)
  assert (out, err) == ('SIGTERM\n', '')


def test_signal_after_the_end_keeps_the_status():
  process = _start("""
    signals.start_command()
    signals.end_command(0)
    print('ready', flush=True)
    time.sleep(60)
  """)
  assert _end(process, signal.SIGTERM)[0] == 0


def test_signal_during_the_process_exit_keeps_the_status():
  """Native exit handlers run after Python has removed its signal handlers."""
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


def test_interrupt_that_a_script_ignores_in_the_background_is_handled():
  process = _start("""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.start_command()
    try:
      print('ready', flush=True)
      time.sleep(60)
    except signals.Stopped as error:
      print(error.number.name)
  """)
  assert _end(process, signal.SIGINT) == (0, 'SIGINT\n', '')


def test_ignored_hangup_stays_ignored():
  """As with `nohup xlflax ...`."""
  process = _start("""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals.start_command()
    print('ready', flush=True)
    time.sleep(1)
    print('went on')
  """)
  assert _end(process, signal.SIGHUP) == (0, 'went on\n', '')


def test_child_processes_keep_default_signal_handling():
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


def test_pending_signal_stops_at_the_next_check():
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


def test_caller_receives_the_signal_outside_of_commands():
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


def test_listeners_are_notified_in_another_thread():
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
