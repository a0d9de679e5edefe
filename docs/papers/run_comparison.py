"""Compares MLM, MLM+TLM, VECO and PPA at one budget of steps, three seeds each.

  python docs/papers/run_comparison.py --data DATA --work WORK [--jobs 2]

English with French, Russian and Chinese. DATA and WORK as run_twins.py says.
Every system trains TRAIN_STEPS steps of `comparison.gin`; PPA's first half is a
run of MLM, its second half MoCo and TLM. Measured are sentence retrieval on
Tatoeba per layer, and processor time. The tables of docs/papers.md are printed
and written to WORK/comparison.md, every number to WORK/comparison.json.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics

import runner

SEEDS = (0, 1, 2)
STEPS = 800
LANGUAGES = ('fr', 'ru', 'zh')
SYSTEMS = {
  'mlm': 'MLM',
  'mlm_tlm': 'MLM + TLM',
  'veco': 'VECO, CA-MLM + TLM',
  'ppa': 'PPA, MLM, then MoCo + TLM',
}
PAIRS = ('--gin.PAIR_LENGTH=96', '--gin.PAIR_BATCH_SIZE=16')


def rows_of(seed: int) -> list[runner.Row]:
  """The runs of one seed."""

  def row(name, file, *more, macros=()):
    return runner.Row(
      f'{name}_{seed}',
      f'pretrain/{file}.gin',
      'compare',
      'unigram',
      macros,
      (
        '--gin_file=models/encoder.gin',
        f'--gin_file={runner.HERE / "comparison.gin"}',
        f'--gin.SEED={seed}',
        *more,
      ),
    )

  half = STEPS // 2
  return [
    row('mlm', 'mlm'),
    row('mlm_tlm', 'mlm_tlm', *PAIRS),
    row('veco', 'veco', *PAIRS, '--gin.LENGTH=48'),
    row('half', 'mlm', f'--gin.TRAIN_STEPS={half}'),
    row(
      'ppa',
      'moco_tlm',
      *PAIRS,
      f'--gin.TRAIN_STEPS={half}',
      '--gin.MAX_TOKENS=92',
      '--gin.MIN_TOKENS=3',
      '--gin.QUEUE_SIZE=2048',
      '--gin.MOMENTUM=0.99',
      '--gin.ALPHA=0.7',
      f'--gin_file={runner.HERE / "begin.gin"}',
      macros=(('INIT_DIR', f'half_{seed}'),),
    ),
  ]


def evaluate(
  maker: runner.Maker, run: pathlib.Path, data: pathlib.Path
) -> dict:
  """Accuracy by layer: mean over languages and directions, and untrained."""
  maker.once(
    f'evaluated/{run.name}',
    lambda path: maker.call(
      [
        'xlflax',
        'evaluate',
        f'--model_dir={run}',
        '--tasks=tatoeba',
        f'--tatoeba={data / "tatoeba"}',
        '--untrained',
        f'--languages={",".join(LANGUAGES)}',
      ],
      maker.log(path),
    ),
  )
  folder = run / 'eval' / 'tatoeba'
  last = max(
    (p.stem for p in folder.glob('*.json') if p.stem.isdigit()), key=int
  )
  return {
    name: by_layer(folder / f'{stem}.json')
    for name, stem in (('trained', last), ('untrained', 'untrained'))
  }


def by_layer(path: pathlib.Path) -> dict[str, list[float]]:
  """Language or 'mean' -> accuracy of each layer."""
  table = json.loads(path.read_text())['tables']['layers']
  layers = sorted({line['layer'] for line in table})
  out = {
    language: [
      statistics.mean(
        line['accuracy']
        for line in table
        if line['pair'] == language and line['layer'] == layer
      )
      for layer in layers
    ]
    for language in LANGUAGES
  }
  out['mean'] = [
    statistics.mean(values) for values in zip(*out.values(), strict=True)
  ]
  return out


def cost(run: pathlib.Path) -> float:
  return json.loads((run / 'cost.json').read_text())['cpu_seconds']


def tokens(run: pathlib.Path) -> float:
  """Tokens that training read, over all its reports."""
  total = 0.0
  for line in (run / 'metrics.jsonl').read_text().splitlines():
    for name, value in json.loads(line).get('train', {}).items():
      if name.endswith('/tokens'):
        total += value
  return total


def spread(values) -> str:
  return f'{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}'


def tables(results: dict) -> str:
  """Retrieval by layer, by language, and cost, with standard deviations."""
  layers = len(results['mlm'][0]['trained']['mean'])
  lines = [
    '| system | ' + ' | '.join(f'layer {i}' for i in range(layers)) + ' |',
    '| --- ' * (layers + 1) + '|',
  ]

  def add(title, values):
    lines.append(f'| {title} | ' + ' | '.join(values) + ' |')

  untrained = [r['untrained']['mean'] for r in results['mlm']]
  add('untrained', [spread(v) for v in zip(*untrained, strict=True)])
  for system, title in SYSTEMS.items():
    seeds = [r['trained']['mean'] for r in results[system]]
    add(title, [spread(v) for v in zip(*seeds, strict=True)])
  lines += [
    '',
    '| system | ' + ' | '.join(LANGUAGES) + ' | CPU seconds | tokens read |',
    '| --- ' * 6 + '|',
  ]
  for system, title in SYSTEMS.items():
    runs = results[system]
    add(
      title,
      [spread([max(r['trained'][x]) for r in runs]) for x in LANGUAGES]
      + [
        f'{statistics.mean(r["cpu_seconds"] for r in runs):.0f}',
        f'{statistics.mean(r["tokens"] for r in runs) / 1e6:.2f}M',
      ],
    )
  return '\n'.join(lines) + '\n'


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data', required=True, type=pathlib.Path)
  parser.add_argument('--work', required=True, type=pathlib.Path)
  parser.add_argument('--jobs', type=int, default=1)
  args = parser.parse_args()
  rows = [row for seed in SEEDS for row in rows_of(seed)]
  maker = runner.Maker(args.data, args.work, rows)

  def measure(system: str, seed: int) -> dict:
    run = maker.run(maker.rows[f'{system}_{seed}'])
    before = [maker.work / 'runs' / f'half_{seed}'] if system == 'ppa' else []
    return evaluate(maker, run, maker.data) | {
      'cpu_seconds': sum(map(cost, [run, *before])),
      'tokens': sum(map(tokens, [run, *before])),
    }

  with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
    futures = {
      (system, seed): pool.submit(measure, system, seed)
      for seed in SEEDS
      for system in SYSTEMS
    }
    results = {
      system: [futures[system, seed].result() for seed in SEEDS]
      for system in SYSTEMS
    }
  (maker.work / 'comparison.json').write_text(json.dumps(results, indent=1))
  text = tables(results)
  (maker.work / 'comparison.md').write_text(text)
  print(text)


if __name__ == '__main__':
  main()
