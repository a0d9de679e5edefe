"""Slurm cluster of two simulated nodes on one machine.

Requires Debian's packages munge, slurmctld, slurmd and slurm-client, and root
(for the names of the nodes in /etc/hosts). All files are in one directory. The
context manager terminates the daemons and removes the names on exit.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from xlflax.launch import supervisor

PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'scancel', 'sinfo')
UNFINISHED = ('PENDING', 'RUNNING', 'COMPLETING', 'CONFIGURING', 'REQUEUED')
_HOSTS = pathlib.Path('/etc/hosts')
_CONFIG = """
ClusterName=tiny
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
KillWait=20
SlurmdTimeout=20
ReturnToService=2
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
SlurmdLogFile={folder}/slurmd.%n.log
{nodes}
PartitionName=all Nodes={names} Default=YES State=UP MaxTime=INFINITE
"""


def missing() -> str | None:
  """Returns the reason why no cluster can be created here, or None."""
  absent = [name for name in PROGRAMS if not _path(name)]
  if absent:
    return 'not installed: ' + ', '.join(absent)
  return None if os.geteuid() == 0 else 'not root'


def _path(program: str) -> str | None:
  return shutil.which(program, path=f'{os.environ["PATH"]}:/usr/sbin:/sbin')


def _free_ports(count: int) -> list[int]:
  listeners = [socket.socket() for _ in range(count)]
  try:
    for listener in listeners:
      listener.bind(('127.0.0.1', 0))
    return [listener.getsockname()[1] for listener in listeners]
  finally:
    for listener in listeners:
      listener.close()


class TinyCluster:
  """Context manager of munged, slurmctld and one slurmd per node name.

  Args:
    folder: Directory of the daemons' configuration, state and logs.
    names: Names of the nodes.
  """

  def __init__(self, folder: pathlib.Path, names=('n1', 'n2')):
    self.folder = folder
    self._mark = (
      f'  # Slurm of {folder}'  # Other clusters may run at the same time.
    )
    self._names = names
    self._daemons: list[subprocess.Popen] = []
    self._nodes: dict[str, subprocess.Popen] = {}

  @property
  def environment(self) -> dict[str, str]:
    return os.environ | {'SLURM_CONF': str(self.folder / 'slurm.conf')}

  def __enter__(self) -> 'TinyCluster':
    self.folder.mkdir(parents=True, exist_ok=True)
    try:
      self._write_names()
      self._start_munge()
      self._write_config()
      self._daemon('slurmctld', '-D')
      for name in self._names:
        self.start_node(name)
      self._wait_until_idle()
    except BaseException:
      self.__exit__()
      raise
    return self

  def __exit__(self, *exc) -> None:
    if len(self._daemons) > 1:
      self._end_jobs()
    for daemon in reversed(self._daemons):
      daemon.terminate()
      try:
        daemon.wait(timeout=20)
      except subprocess.TimeoutExpired:
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait()
    self._daemons.clear()
    self._remove_names()

  def start_node(self, name: str) -> None:
    """Starts a node's slurmd."""
    self._nodes[name] = self._daemon('slurmd', '-D', '-N', name)

  def kill_node(self, name: str) -> None:
    """Kills a node's slurmd without notice, as if the machine were lost."""
    self._nodes[name].kill()
    self._nodes[name].wait()

  def _end_jobs(self):
    """Terminates the processes of all jobs."""
    for _ in range(60):
      subprocess.run(
        ['scancel', '--signal=KILL', '--full', '--user=root'],
        env=self.environment,
        check=False,
        capture_output=True,
      )
      subprocess.run(
        ['scancel', '--user=root'],
        env=self.environment,
        check=False,
        capture_output=True,
      )
      queue = subprocess.run(
        ['squeue', '--noheader'],
        env=self.environment,
        check=False,
        capture_output=True,
      )
      if not queue.stdout.strip():
        return
      time.sleep(0.5)

  def _remove_names(self):
    lines = _HOSTS.read_text().splitlines(keepends=True)
    _HOSTS.write_text(''.join(x for x in lines if self._mark not in x))

  def run(self, *command: str) -> str:
    """Returns the output of a Slurm command; fails with its output."""
    result = subprocess.run(
      command,
      env=self.environment,
      text=True,
      timeout=60,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      check=False,
    )
    assert result.returncode == 0, f'{command}: {result.stdout}'
    return result.stdout

  def state(self, job: str) -> str:
    """Returns the job state, such as 'RUNNING'; for arrays, the least final."""
    description = self.run('scontrol', '--oneliner', 'show', 'job', job)
    states = re.findall(r'JobState=(\S+)', description)
    return next((s for s in states if s in UNFINISHED), states[0])

  def _write_names(self):
    with _HOSTS.open('a') as file:
      file.writelines(f'127.0.0.1 {name}{self._mark}\n' for name in self._names)

  def _start_munge(self):
    key = self.folder / 'munge.key'
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    self._daemon(
      'munged',
      '--foreground',
      '--force',
      f'--key-file={key}',
      *(
        f'--{kind}-file={self.folder}/munge.{kind}'
        for kind in ('pid', 'seed', 'log')
      ),
      f'--socket={self.folder}/munge.socket',
    )
    for _ in range(100):
      if (self.folder / 'munge.socket').exists():
        return
      time.sleep(0.1)
    raise AssertionError(self.logs())

  def _write_config(self):
    control, *ports = _free_ports(1 + len(self._names))
    nodes = '\n'.join(
      f'NodeName={name} NodeHostname={socket.gethostname()} '
      f'NodeAddr=127.0.0.1 Port={port} CPUs=2'
      for name, port in zip(self._names, ports, strict=True)
    )
    (self.folder / 'slurm.conf').write_text(
      _CONFIG.format(
        host=socket.gethostname(),
        port=control,
        folder=self.folder,
        nodes=nodes,
        names=','.join(self._names),
      )
    )
    (self.folder / 'state').mkdir(exist_ok=True)

  def _daemon(self, program: str, *arguments: str) -> subprocess.Popen:
    with (self.folder / 'daemons.log').open('a') as log:
      daemon = subprocess.Popen(
        [_path(program), *arguments],
        env=self.environment,
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        preexec_fn=supervisor.die_with_parent,
      )
    self._daemons.append(daemon)
    return daemon

  def _wait_until_idle(self):
    output = ''
    for _ in range(120):
      result = subprocess.run(
        ['sinfo', '--noheader', '--format=%D %t'],
        env=self.environment,
        capture_output=True,
        text=True,
        check=False,
      )
      output = result.stdout + result.stderr
      if result.stdout.split() == [str(len(self._names)), 'idle']:
        return
      time.sleep(0.5)
    raise AssertionError(f'{output}\n{self.logs()}')

  def logs(self) -> str:
    """Returns the last lines of all daemon logs."""
    return '\n'.join(
      f'--- {path.name}\n'
      + '\n'.join(path.read_text(errors='replace').splitlines()[-15:])
      for path in sorted(self.folder.glob('*.log'))
    )
