"""Tokens a second and core, and memory, of writing a token cache.

  python -m benchmarks.cache_rates --work=DIR --vocabulary=DIR --data=DATA

Beside `xlflax cache`, each with two processes on the same plain text files and
the same SentencePiece model: SeqIO's own `cache_tasks` on Beam's DirectRunner
(`pip install "xlflax[beam]"`), and Hugging Face `datasets.map(num_proc=2)` with
the fast tokenizer. Each runs on two sizes of text, `--megabytes`, or its own,
as `--megabytes_of=seqio=1,3`; `tokens_per_core_second` is what the larger one
has more of tokens over what it takes more of processor seconds, so that
imports do not count, and `with_start` is the larger one with them. Memory is
the most that a command and all its processes held at once, looked at every
second: `shared_mb` counts pages of several processes once, imported
libraries included, `own_mb` what is no file's.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from benchmarks import large_text, measure

_PYTHON = (sys.executable, '-m')
PROGRAMS = ('xlflax', 'seqio', 'datasets')
_MIN_RELATIVE_DIFFERENCE = (
  0.2  # of the smaller text's seconds: noise of the start
)
_LANGUAGES = ('de', 'en', 'ru', 'zh')


def run_program(
  peer: str, folder: pathlib.Path, vocabulary: pathlib.Path
) -> dict:
  """Tokenises `folder`/mono with one of `PEERS`.

  Returns:
    Tokens, processor seconds and MB.
  """
  output = folder.parent / f'{peer}-{folder.name}'
  shutil.rmtree(output, ignore_errors=True)
  texts = sorted(map(str, (folder / 'mono').glob('*.txt')))
  model = str(vocabulary / 'sentencepiece.model')
  command = {
    'xlflax': [
      *(*_PYTHON, 'xlflax.cli', 'cache', '--num_workers=2', '--json'),
      f'--corpus={folder}',
      f'--vocabulary={vocabulary}',
      f'--output={output}',
    ],
    'seqio': [
      *(*_PYTHON, 'seqio.scripts.cache_tasks_main'),
      '--module_import=benchmarks.peers.seqio_cache',
      '--tasks=xlflax_benchmark',
      f'--output_cache_dir={output}',
      '--pipeline_options=--runner=DirectRunner,--direct_num_workers=2,'
      '--direct_running_mode=multi_processing',
    ],
    'datasets': [
      *(*_PYTHON, 'benchmarks.peers.datasets_map', f'--model={model}'),
      *(f'--output={output}', '--num_proc=2', *texts),
    ],
  }[peer]
  environment = {
    'XLFLAX_BENCHMARK_TEXTS': os.pathsep.join(texts),
    'XLFLAX_BENCHMARK_MODEL': model,
    'PYTHONPATH': str(measure.ROOT),
    'TOKENIZERS_PARALLELISM': 'false',
  }
  printed, seconds, most = _run_and_monitor(command, os.environ | environment)
  return {
    'tokens': _count_tokens(peer, output, printed),
    'seconds': seconds,
  } | most


def compute_rates(small: dict, large: dict) -> dict:
  """Of the runs on two sizes of text; no rate where the start hides it."""
  tokens = large['tokens'] - small['tokens']
  seconds = large['seconds'] - small['seconds']
  is_hidden = seconds < _MIN_RELATIVE_DIFFERENCE * small['seconds']
  return {
    'tokens': large['tokens'],
    'seconds': round(large['seconds'], 1),
    'tokens_per_core_second': None if is_hidden else round(tokens / seconds),
    'with_start': round(large['tokens'] / large['seconds']),
    'shared_mb': large['shared_mb'],
    'own_mb': large['own_mb'],
  }


def _run_and_monitor(command: list[str], environment: dict[str, str]):
  """Runs a command; what it printed, its processor seconds, its memory."""
  before = _child_cpu_seconds()
  most = {'shared_mb': 0, 'own_mb': 0}
  with tempfile.TemporaryFile('w+') as out, tempfile.TemporaryFile('w+') as err:
    with subprocess.Popen(
      command, env=environment, stdout=out, stderr=err
    ) as process:
      while process.poll() is None:
        now = _measure_memory(process.pid)
        most = {name: max(most[name], now[name]) for name in most}
        time.sleep(1)
    out.seek(0)
    err.seek(0)
    printed = out.read()
    if process.returncode:
      raise RuntimeError(f'{" ".join(command)}: {err.read()[-3000:]}')
  return printed, _child_cpu_seconds() - before, most


def _child_cpu_seconds() -> float:
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime


def _measure_memory(pid: int) -> dict[str, int]:
  """Of a process and all that it started, MB."""
  pss = own = 0
  for number in _list_processes(pid):
    try:
      text = pathlib.Path(f'/proc/{number}/smaps_rollup').read_text()
    except OSError:
      continue  # it has just ended
    found = dict(re.findall(r'^(\w+): +(\d+) kB$', text, re.MULTILINE))
    pss += int(found.get('Pss', 0))
    own += int(found.get('Pss_Anon', 0)) + int(found.get('Pss_Shmem', 0))
  return {'shared_mb': round(pss / 1e3), 'own_mb': round(own / 1e3)}


def _list_processes(pid: int) -> list[int]:
  found = [pid]
  for number in found:
    for path in pathlib.Path(f'/proc/{number}/task').glob('*/children'):
      try:
        found += map(int, path.read_text().split())
      except OSError:
        continue
  return found


def _count_tokens(peer: str, output: pathlib.Path, printed: str) -> int:
  if peer == 'datasets':
    return int(printed.split()[-1])
  if peer == 'xlflax':
    metas = json.loads(printed)
    return sum(side['tokens'] for m in metas for side in m['statistics'])
  [stats] = output.rglob('stats.train.json')
  return int(json.loads(stats.read_text())['targets_tokens'])


def main(arguments: list[str] | None = None) -> None:
  """Prints a line of JSON for each."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--work', type=pathlib.Path, required=True)
  parser.add_argument('--vocabulary', type=pathlib.Path, required=True)
  parser.add_argument('--data', type=pathlib.Path)
  parser.add_argument('--megabytes', default='5,25')
  parser.add_argument('--megabytes_of', action='append', default=[])
  parser.add_argument('--peers', default=','.join(PROGRAMS))
  args = parser.parse_args(arguments)
  own = dict(text.split('=') for text in args.megabytes_of)
  for peer in args.peers.split(','):
    small, large = (
      run_program(peer, _prepare_text(args, float(size)), args.vocabulary)
      for size in own.get(peer, args.megabytes).split(',')
    )
    print(json.dumps({'peer': peer} | compute_rates(small, large)), flush=True)


def _prepare_text(args: argparse.Namespace, megabytes: float) -> pathlib.Path:
  """Text of a size, which is written unless it is there."""
  folder = args.work.absolute() / f'{megabytes:g}'
  if not folder.exists():
    large_text.write_synthetic_text(folder, args.data, _LANGUAGES, megabytes)
  return folder


if __name__ == '__main__':
  main()
