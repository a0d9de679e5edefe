"""How far plans by the estimate are off what the compilers say.

  python -m benchmarks.estimates WORK xlmr-base@gpu:H200:8 [CASE@DEVICES ...]
  python -m benchmarks.estimates WORK --page docs/performance.md

Plans the cases of `benchmarks.compile_targets` by `--plan_by=estimate`, which
needs no package of a compiler, keeps their figures in a file beside this one,
and shows all of that file beside what is recorded of the compilers. --page
writes the table between a page's markers.
"""

import argparse
import json
import pathlib

from benchmarks import compile_targets, scaling

RECORD = pathlib.Path(__file__).with_suffix('.json')


def table(estimated: dict[str, dict], recorded: dict[str, dict]) -> str:
  """Returns Markdown: each case by the estimate, and by the compiler.

  Args:
    estimated: 'case@devices' -> `compile_targets.figures` of the estimate.
    recorded: the same of the compilers.
  """
  lines = [
    '| step | devices | estimate: bound, ms | MFU bound | peak, GiB | '
    'compiler: bound, ms | MFU bound | peak, GiB |',
    '| --- ' * 8 + '|',
  ]
  for key, found in estimated.items():
    name, devices = key.split('@')
    both = (compile_targets.cells(f) for f in (found, recorded.get(key)))
    lines.append(f'| {name} | {devices} | {" | ".join(both)} |')
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('work', type=pathlib.Path, metavar='WORK')
  parser.add_argument('cells', nargs='*', metavar='CASE@DEVICES')
  parser.add_argument('--page', type=pathlib.Path, metavar='FILE')
  args = parser.parse_args()
  args.work.mkdir(parents=True, exist_ok=True)
  cases = {case.name: case for case in compile_targets.CASES}
  estimated = json.loads(RECORD.read_text()) if RECORD.exists() else {}
  for key in args.cells:
    name, devices = key.split('@')
    made = compile_targets.plan(args.work, cases[name], devices, by='estimate')
    estimated[key] = compile_targets.figures(made)
    RECORD.write_text(json.dumps(estimated, indent=1) + '\n')
  recorded = json.loads(compile_targets.RECORD.read_text())['recorded']
  text = table(estimated, recorded)
  print(text)
  if args.page:
    scaling.write_page(args.page, text, 'estimates')


if __name__ == '__main__':
  main()
