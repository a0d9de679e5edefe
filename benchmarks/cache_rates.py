"""Tokens/s per core and peak memory of programs that tokenize a corpus.

  python -m benchmarks.cache_rates --work=DIR --vocabulary=DIR --data=DATA

Compares `xlflax cache` with SeqIO's `cache_tasks` on Beam's DirectRunner (`pip
install "xlflax[beam]"`), and with Hugging Face `datasets.map(num_proc=2)` and
the fast tokenizer. Each program uses two processes, the same plain text files
and the same SentencePiece model. Each runs on two text sizes, which are set by
`--megabytes`, or for a single program as in `--megabytes_of=seqio=1,3`.
`tokens_per_core_second` is the difference in tokens between both runs divided
by their difference in CPU seconds, which excludes imports. `with_start` is the
rate on the larger text, including imports. Memory is the peak usage of a
command and all its processes, sampled every second. `shared_mb` includes
imported libraries, and counts pages that several processes share only once.
`own_mb` counts only pages that are not backed by a file.
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
# Minimum difference in CPU seconds relative to the smaller text. Below it, the
# noise of the startup dominates.
_MIN_RELATIVE_DIFFERENCE = 0.2
_LANGUAGES = ('de', 'en', 'ru', 'zh')


def run_program(
  program: str, folder: pathlib.Path, vocabulary: pathlib.Path
) -> dict:
  """Tokenizes the text in `folder`/mono with one of `PROGRAMS`.

  Returns:
    The number of tokens, CPU seconds, and peak memory in MB.
  """
  output = folder.parent / f'{program}-{folder.name}'
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
      '--module_import=benchmarks.baselines.seqio_cache',
      '--tasks=xlflax_benchmark',
      f'--output_cache_dir={output}',
      '--pipeline_options=--runner=DirectRunner,--direct_num_workers=2,'
      '--direct_running_mode=multi_processing',
    ],
    'datasets': [
      *(*_PYTHON, 'benchmarks.baselines.datasets_map', f'--model={model}'),
      *(f'--output={output}', '--num_proc=2', *texts),
    ],
  }[program]
  environment = {
    'XLFLAX_BENCHMARK_TEXTS': os.pathsep.join(texts),
    'XLFLAX_BENCHMARK_MODEL': model,
    'PYTHONPATH': str(measure.ROOT),
    'TOKENIZERS_PARALLELISM': 'false',
  }
  output_text, seconds, peak_memory = _run_and_monitor(
    command, os.environ | environment
  )
  return {
    'tokens': _count_tokens(program, output, output_text),
    'seconds': seconds,
  } | peak_memory


def compute_rates(small: dict, large: dict) -> dict:
  """Computes a program's throughput from its runs on a small and a large text.

  `tokens_per_core_second` is None if the difference in CPU seconds is smaller
  than variations in the startup time.
  """
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
  """Runs a command and returns its output, CPU seconds and peak memory."""
  seconds_before = _child_cpu_seconds()
  peak_memory = {'shared_mb': 0, 'own_mb': 0}
  with (
    tempfile.TemporaryFile('w+') as stdout,
    tempfile.TemporaryFile('w+') as stderr,
  ):
    with subprocess.Popen(
      command, env=environment, stdout=stdout, stderr=stderr
    ) as process:
      while process.poll() is None:
        memory = _measure_memory(process.pid)
        peak_memory = {
          name: max(peak_memory[name], memory[name]) for name in peak_memory
        }
        time.sleep(1)
    stdout.seek(0)
    stderr.seek(0)
    output_text = stdout.read()
    if process.returncode:
      raise RuntimeError(
        f'`{" ".join(command)}` failed:\n{stderr.read()[-3000:]}'
      )
  return output_text, _child_cpu_seconds() - seconds_before, peak_memory


def _child_cpu_seconds() -> float:
  """Returns the CPU seconds of all child processes that have ended."""
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  return usage.ru_utime + usage.ru_stime


def _measure_memory(pid: int) -> dict[str, int]:
  """Returns the memory in MB of a process and all its descendants."""
  pss = anonymous = 0
  for process_id in _list_processes(pid):
    try:
      text = pathlib.Path(f'/proc/{process_id}/smaps_rollup').read_text()
    except OSError:
      continue  # The process has ended.
    fields = dict(re.findall(r'^(\w+): +(\d+) kB$', text, re.MULTILINE))
    pss += int(fields.get('Pss', 0))
    anonymous += int(fields.get('Pss_Anon', 0)) + int(
      fields.get('Pss_Shmem', 0)
    )
  return {'shared_mb': round(pss / 1e3), 'own_mb': round(anonymous / 1e3)}


def _list_processes(pid: int) -> list[int]:
  """Returns the IDs of a process and all its descendants."""
  process_ids = [pid]
  for process_id in process_ids:
    for path in pathlib.Path(f'/proc/{process_id}/task').glob('*/children'):
      try:
        process_ids += map(int, path.read_text().split())
      except OSError:
        continue
  return process_ids


def _count_tokens(program: str, output: pathlib.Path, output_text: str) -> int:
  """Returns the number of tokens that a program wrote."""
  if program == 'datasets':
    return int(output_text.split()[-1])
  if program == 'xlflax':
    metas = json.loads(output_text)
    return sum(side['tokens'] for task in metas for side in task['statistics'])
  [stats] = output.rglob('stats.train.json')
  return int(json.loads(stats.read_text())['targets_tokens'])


def main(arguments: list[str] | None = None) -> None:
  """Prints each program's throughput and memory use as a line of JSON."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add(
    '--work',
    type=pathlib.Path,
    required=True,
    help='Working directory for all outputs.',
  )
  add(
    '--vocabulary',
    type=pathlib.Path,
    required=True,
    help='Vocabulary directory with a SentencePiece model.',
  )
  add(
    '--data', type=pathlib.Path, help='Folder that contains public data sets.'
  )
  add(
    '--megabytes',
    default='5,25',
    help='Two text sizes in MB, separated by a comma.',
  )
  add(
    '--megabytes_of',
    action='append',
    default=[],
    metavar='PROGRAM=SIZES',
    help='Two text sizes for one program. Repeat the option for several '
    'programs.',
  )
  add(
    '--programs',
    default=','.join(PROGRAMS),
    help='Programs to measure, separated by commas.',
  )
  args = parser.parse_args(arguments)
  sizes_by_program = dict(text.split('=') for text in args.megabytes_of)
  for program in args.programs.split(','):
    small, large = (
      run_program(program, _prepare_text(args, float(size)), args.vocabulary)
      for size in sizes_by_program.get(program, args.megabytes).split(',')
    )
    print(
      json.dumps({'program': program} | compute_rates(small, large)), flush=True
    )


def _prepare_text(args: argparse.Namespace, megabytes: float) -> pathlib.Path:
  """Returns a folder with text of a given size, writing it if necessary."""
  folder = args.work.absolute() / f'{megabytes:g}'
  if not folder.exists():
    large_text.write_synthetic_text(folder, args.data, _LANGUAGES, megabytes)
  return folder


if __name__ == '__main__':
  main()
