"""Pages of `xlflax serve`: runs as they train, and an encoder to try."""

import dataclasses
import functools
import html
import http
import inspect
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.evaluation.reports import page, run_pages, text
from xlflax.foundation import errors
from xlflax.runs import server, trial
from xlflax.storage import paths
from xlflax.training.checkpointing import run_directory

_SECONDS = 20  # between two looks of a browser
_LONGEST = 1_000  # characters of a text
# The page takes in what is new without losing focus, place or a sorting.
_LIVE = """<script>
  let shown = document.querySelector('main').innerHTML;
  setInterval(async () => {
    const text = await (await fetch('/')).text();
    const found = new DOMParser().parseFromString(text, 'text/html');
    const now = found.querySelector('main').innerHTML;
    if (now === shown) return;
    document.querySelector('main').innerHTML = shown = now;
  }, SECONDS * 1000);
</script>
</body>"""
_NOT_FOUND = http.HTTPStatus.NOT_FOUND


def runs_page(
  named: Mapping[str, str], folder: pathlib.Path, command: Sequence[str] = ()
) -> server.Answer:
  """One page of several runs, made anew when one of them has written.

  Args:
    named: name -> directory.
    folder: for the page and its pictures.
    command: the words of the command.
  """
  directories = {name: paths.of(path) for name, path in named.items()}

  @functools.lru_cache(maxsize=1)
  def made(state: object) -> str:
    del state  # the page is of this state
    try:
      records = [
        run_pages.read(d, name=name) for name, d in directories.items()
      ]
      file = run_pages.side_by_side(folder, records, command=command)
    except errors.RunDirectoryError as error:  # it may have just begun
      return page.wrap('Nothing to show yet', str(error), '')
    return file.read_text(encoding='utf-8')

  def answer(path: str, query: Mapping[str, str]) -> server.Reply:
    del query
    if path != '/':
      return server.Reply('Not found.\n', 'text/plain', _NOT_FOUND)
    shown = made(tuple(_state(one) for one in directories.values()))
    live = _LIVE.replace('SECONDS', str(_SECONDS))
    return server.Reply(live.join(shown.rsplit('</body>', 1)))

  return answer


def _state(directory: pathlib.Path) -> tuple[tuple[str, int], ...]:
  """What tells whether a run has written something."""
  found = [directory / run_directory.METRICS]
  found += directory.glob(f'{run_directory.EVALUATION}/**/*.json')
  return tuple((str(x), x.stat().st_mtime_ns) for x in found if x.exists())


@dataclasses.dataclass(frozen=True)
class EncoderPage:
  """Forms for the questions of a trial, and `/api/<question>` for programs.

  Attributes:
    asked: the run and its texts.
    title: of the page.
  """

  asked: trial.Trial
  title: str

  def __call__(self, path: str, query: Mapping[str, str]) -> server.Reply:
    """A page, or JSON: `{"rows": [...]}` or `{"error": {...}}`."""
    as_json = path.startswith('/api/')
    question = path.removeprefix('/api').strip('/')
    if question and question not in self.asked.questions:
      known = f'One of: {", ".join(self.asked.questions)}.\n'
      return server.Reply(known, 'text/plain', _NOT_FOUND)
    found: dict[str, Any] = {}
    status = http.HTTPStatus.OK
    try:
      found = {'rows': self._rows(question, query)} if question else {}
    except errors.XlflaxError as error:
      status, found = http.HTTPStatus.BAD_REQUEST, {'error': error.parts}
    if as_json:
      return server.Reply(json.dumps(found), 'application/json', status)
    return server.Reply(self._page(question, query, found), status=status)

  def _rows(self, question: str, query: Mapping[str, str]) -> trial.Rows:
    fields = _fields(self.asked, question)
    given = {name: query.get(name, '').strip() for name in fields}
    texts = [text for name, text in given.items() if 'language' not in name]
    lengths = {name: len(text) for name, text in query.items()}
    longest = max(lengths.values(), default=0)
    if not (set(query) <= set(fields) and all(texts) and longest <= _LONGEST):
      raise errors.ConfigError(
        'The question cannot be answered',
        got=f'characters of each: {lengths}',
        expected=f'{", ".join(fields)}; at most {_LONGEST:,} characters each',
        where=question,
      )
    return getattr(self.asked, question)(**given)

  def _page(self, question, query, found) -> str:
    parts = []
    for name in self.asked.questions:
      explained = inspect.getdoc(getattr(self.asked, name)) or ''
      parts.append(f'<h2>{name}</h2><p>{html.escape(explained)}</p>')
      values = query if name == question else {}
      parts.append(_form(name, _fields(self.asked, name), values))
      if name == question and found.get('rows'):
        parts.append(_table(found['rows']))
      elif name == question:
        message = found.get('error', {}).get('what', 'Nothing was found')
        more = found.get('error', {}).get('expected', '')
        parts.append(f'<p role="alert">{html.escape(f"{message}. {more}")}</p>')
    known = ', '.join(self.asked.run.vocabulary.spec.languages) or 'any'
    return page.wrap(self.title, f'Languages: {known}.', '\n'.join(parts))


def _fields(asked: trial.Trial, question: str) -> list[str]:
  return list(inspect.signature(getattr(asked, question)).parameters)


def _form(name: str, fields: Sequence[str], values: Mapping[str, str]) -> str:
  labels = ''.join(
    f'<p><label>{field.replace("_", " ")}<br><input name="{field}" '
    f'maxlength="{_LONGEST}" size="{8 if "language" in field else 60}" '
    f'style="max-width: 100%" value="{html.escape(values.get(field, ""))}">'
    '</label></p>'
    for field in fields
  )
  return f'<form action="/{name}">{labels}<button>Ask</button></form>'


def _table(rows: trial.Rows) -> str:
  shown = [[_text(x) for x in row.values()] for row in rows]
  return text.Table('Answer', list(rows[0]), shown).html()


def _text(value: object) -> str:
  return f'{value:.4f}' if isinstance(value, float) else str(value)
