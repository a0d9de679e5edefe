"""What Hugging Face and Sentence-Transformers make of the same compute.

  python -m studies.rehearsal.peer WORK [THREADS]

After studies/rehearsal/run.sh: BertForMaskedLM of the same sizes (4 layers of
128, the head at the masked places only) for the processor seconds of the run
`mlm`, then SentenceTransformerTrainer on the same pairs for those of
`aligned`. How many steps that is follows from PILOT steps of each, start-up
left out. A masked LM that was stopped goes on. Packages sentence-transformers
and torch have to be importable. The outcome is WORK/runs/peer, a model
directory as `xlflax convert from-hf` makes it.
"""

import dataclasses
import json
import pathlib
import random
import resource
import shutil
import subprocess
import sys

from benchmarks import efficiency, search_finetuning

PILOT = 40
PAIRS, SIDE = 64, 32  # a batch's, and tokens of a side
_FILES = ('tokenizer.json', 'tokenizer_config.json')


def seconds(command: list[str]) -> float:
  """Runs a command; processor seconds of it and of its children."""
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  subprocess.run(command, check=True)
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def budget(work: pathlib.Path, name: str) -> float:
  """Processor seconds that a run of the rehearsal took, all its starts."""
  rows = (line.split() for line in (work / 'times').read_text().splitlines())
  return sum(float(row[1]) + float(row[2]) for row in rows if row[0] == name)


def steps_for(run, wanted: float) -> int:
  """Steps that take so long: by two short runs, whose start-up is alike."""
  short, long = run(PILOT), run(3 * PILOT)
  start = short - (long - short) / 2
  return max(int((wanted - start) / ((long - short) / (2 * PILOT))), PILOT)


def masked_lm(work: pathlib.Path, threads: int) -> pathlib.Path:
  """Hugging Face's folder, pretrained."""
  setting = efficiency.Setting(
    corpus=str(work / 'corpus'),
    cache=str(work / 'cache'),
    vocabulary=str(work / 'vocab'),
    work=str(work / 'peer/masked_lm'),
    core=0,
    hidden=128,
    length=128,
    batch=20,
    rate=1e-3,
    threads=threads,
  )

  def run(steps: int, name: str = 'pilot') -> float:
    """Processor seconds, those of starts that were stopped too."""
    import torch

    one = dataclasses.replace(
      setting,
      tokens=steps * setting.batch * setting.length,
      work=f'{setting.work}/{name}-{steps}',
    )
    one.folder('torch/gathered').mkdir(parents=True, exist_ok=True)
    if not one.rows.exists():
      efficiency.write_rows(one)
    subprocess.run(efficiency.torch_command(one, 'torch/gathered'), check=True)
    state = one.folder('torch/gathered') / 'STATE.pt'
    return torch.load(state, weights_only=True)['seconds']

  found = noted(work).get('masked_lm', {})
  if not found:
    wanted = budget(work, 'mlm')
    steps = steps_for(run, wanted)
    steps -= steps % efficiency.CHECKPOINTS
    found = {'steps': steps, 'wanted': wanted}
    note(work, 'masked_lm', found)
  steps = found['steps']
  if 'seconds' not in found:
    note(work, 'masked_lm', found | {'seconds': run(steps, 'whole')})
  whole = pathlib.Path(f'{setting.work}/whole-{steps}')
  return whole / f'torch-gathered/checkpoints/{steps}'


def pairs(work: pathlib.Path, count: int) -> list[str]:
  """Lines 'English<TAB>translation' of the training pairs, in a drawn order."""
  found = []
  for path in sorted((work / 'corpus/parallel').glob('*.tsv')):
    languages = path.name.partition('.')[0].split('-')
    for line in path.read_text('utf-8').splitlines():
      first, _, second = line.partition('\t')
      sides = (first, second) if languages[0] == 'en' else (second, first)
      if all(sides):
        found.append('\t'.join(sides))
  random.Random(0).shuffle(found)
  return found[:count]


def aligned(
  work: pathlib.Path, model: pathlib.Path, threads: int
) -> pathlib.Path:
  """Sentence-Transformers' folder, trained on pairs."""
  own = work / 'peer/own'  # of the same vocabulary
  shutil.rmtree(own, ignore_errors=True)
  convert('to-hf', str(work / 'runs/mlm'), f'--output={own}')
  for name in _FILES:
    shutil.copy(own / name, model / name)
  setting = search_finetuning.Setting(
    model=str(model),
    data='',
    work=str(work / 'peer/aligned'),
    pairs=PAIRS,
    length=SIDE,
    rate=2e-4,
    threads=threads,
  )

  def run(steps: int, name: str = 'pilot') -> float:
    one = dataclasses.replace(setting, work=f'{setting.work}/{name}-{steps}')
    shutil.rmtree(one.work, ignore_errors=True)
    one.pairs_file(0).parent.mkdir(parents=True)
    lines = pairs(work, steps * PAIRS)
    one.pairs_file(0).write_text('\n'.join(lines) + '\n', 'utf-8')
    described = json.dumps(dataclasses.asdict(one))
    module = 'benchmarks.peers.search_finetuning'
    return seconds([sys.executable, '-m', module, described, '0'])

  wanted = budget(work, 'aligned')
  steps = steps_for(run, wanted)
  spent = run(steps, 'whole')
  found = {'steps': steps, 'wanted': wanted, 'seconds': spent}
  note(work, 'aligned', found)
  return pathlib.Path(f'{setting.work}/whole-{steps}/sentence-transformers-0')


def noted(work: pathlib.Path) -> dict:
  """What WORK/peer.json says was spent."""
  path = work / 'peer.json'
  return json.loads(path.read_text()) if path.exists() else {}


def note(work: pathlib.Path, name: str, found: dict) -> None:
  """Keeps what was spent in WORK/peer.json."""
  everything = json.dumps(noted(work) | {name: found}, indent=1)
  (work / 'peer.json').write_text(everything + '\n')
  print(name, found, flush=True)


def main() -> None:
  work = pathlib.Path(sys.argv[1])
  threads = int(sys.argv[2]) if len(sys.argv) > 2 else 1
  folder = aligned(work, masked_lm(work, threads), threads)
  run = work / 'runs/peer'
  shutil.rmtree(run, ignore_errors=True)
  convert('from-hf', str(folder), f'--output={run}')


def convert(*words: str) -> None:
  """`xlflax convert`."""
  command = [sys.executable, '-m', 'xlflax.cli', 'convert', *words]
  subprocess.run(command, check=True)


if __name__ == '__main__':
  main()
