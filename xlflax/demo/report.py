"""The demo's report: summary.json, pictures and a page that shows them."""

import html
import importlib.resources
import json
import pathlib
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xlflax.demo import plots
from xlflax.evaluation.reports import run_pages
from xlflax.storage import paths

SUMMARY = 'summary.json'
PAGE = 'index.html'
OBJECTIVES = {
  'mlm': 'masked LM',
  'tlm': 'translation LM',
  'align': 'sentence alignment',
  'words': 'alignment of the embeddings',
}

Losses = Mapping[str, Sequence[tuple[int, float]]]


def write_report(
  directory: pathlib.Path, summary: Mapping[str, Any], losses: Losses
) -> pathlib.Path:
  """Writes all files of the report.

  Args:
    directory: is created; the files in it are replaced.
    summary: as `xlflax.demo.summary.make` returns it.
    losses: objective -> (step, loss).

  Returns:
    The path of the page.
  """
  directory.mkdir(parents=True, exist_ok=True)
  retrieval = summary['retrieval']
  plots.plot_losses(directory / 'losses.png', losses, OBJECTIVES)
  plots.plot_retrieval(
    directory / 'retrieval.png', retrieval['untrained'], retrieval['trained']
  )
  plots.plot_layers(directory / 'layers.png', summary['layers'])
  paths.write_atomically(directory / PAGE, _page(summary))
  # The summary last: where it is, the report is whole.
  paths.write_atomically(
    directory / SUMMARY,
    json.dumps(summary, indent=2, ensure_ascii=False) + '\n',
  )
  return directory / PAGE


def read_losses(model_dir: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
  """The training losses of a run by objective: `{'mlm': [(50, 7.1)]}`.

  Losses that were not finite are left out.
  """
  found = run_pages.read(model_dir, name=model_dir.name).losses
  return {
    name.removesuffix('/loss'): list(losses.items())
    for name, losses in found.items()
    if name.count('/') == 1
  }


def _page(summary: Mapping[str, Any]) -> str:
  template = string.Template(
    importlib.resources.files('xlflax.demo')
    .joinpath('report.html')
    .read_text(encoding='utf-8')
  )
  mean = summary['retrieval']['mean']
  corpus = summary['corpus']
  return template.substitute(
    headline=f'Retrieval accuracy {mean["untrained"]:.2f} before training, '
    f'{mean["trained"]:.2f} after, on average over '
    f'{len(summary["retrieval"]["trained"])} languages.',
    introduction=f'A small encoder was pretrained on '
    f'{corpus["training_pairs_total"]:,} pairs of messages from Django’s '
    f'user interface in {len(summary["languages"])} languages, with masked '
    'language modelling, translation language modelling and sentence '
    'alignment. No message shown here was in its training text.',
    language_rows='\n'.join(_language_rows(summary)),
    mean_row=_row(
      ['mean', *map(_percent, (mean['untrained'], mean['trained'])), '', '', '']
    ),
    num_test=corpus['test_messages'],
    layer=summary['layer'],
    examples=_examples(summary.get('examples', ())),
    setting_rows='\n'.join(_setting_rows(summary)),
    commands=html.escape('\n'.join(summary['commands'])),
  )


def _language_rows(summary: Mapping[str, Any]) -> Iterable[str]:
  names = summary['language_names']
  retrieval, perplexity = summary['retrieval'], summary['perplexity']
  for language in summary['languages']:
    cells = [f'{names[language]} ({language})']
    for scores, show in ((retrieval, _percent), (perplexity, _number)):
      cells += [
        show(scores[model].get(language)) for model in ('untrained', 'trained')
      ]
    pairs = summary['corpus']['training_pairs'].get(language)
    yield _row([*cells, f'{pairs:,}' if pairs else ''])


def _setting_rows(summary: Mapping[str, Any]) -> Iterable[str]:
  for name, value in summary['settings'].items():
    yield _row([name.replace('_', ' '), value])
  for phase, seconds in summary['seconds'].items():
    yield _row([f'seconds: {phase}', f'{seconds:.1f}'])
  for package, version in summary['versions'].items():
    yield _row([package, version])


def _examples(examples: Sequence[Mapping[str, str]]) -> str:
  """A table of what the trained model found, '' without examples."""
  if not examples:
    return ''
  head = (
    '<h2>What it finds</h2>\n<table class="examples"><thead><tr>'
    '<th>message</th><th>nearest English message</th><th></th></tr>'
    '</thead><tbody>'
  )
  rows = [
    f'<tr><td lang="{example["language"]}" dir="auto">'
    f'{html.escape(example["query"])}</td>'
    f'<td>{html.escape(example["found"])}</td>'
    f'<td>{"right" if example["found"] == example["answer"] else "wrong"}'
    '</td></tr>'
    for example in examples
  ]
  return '\n'.join([head, *rows, '</tbody></table>'])


def _row(cells: Iterable[Any]) -> str:
  return (
    '<tr>'
    + ''.join(f'<td>{html.escape(str(cell))}</td>' for cell in cells)
    + '</tr>'
  )


def _percent(value: float | None) -> str:
  return '' if value is None else f'{100 * value:.1f} %'


def _number(value: float | None) -> str:
  return '' if value is None else f'{value:,.0f}'
