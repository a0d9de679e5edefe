"""The files of each task family, in each language."""

from collections.abc import Callable, Iterator, Sequence

from studies.synthetic import alike_files, alterations, examples, formats
from studies.synthetic.draws import Draws
from studies.synthetic.meaning import statement
from studies.synthetic.options import SyntheticOptions
from studies.synthetic.rendering import Renderer, links
from studies.synthetic.sampling import Sampler

Files = Iterator[tuple[str, str]]


def files(kind: str, options: SyntheticOptions, renderer: Renderer) -> Files:
  """Yields (path, content) of a family; see docs/synthetic/files.md for paths."""
  for split, items in examples.draw(options, renderer, kind).items():
    yield from _KINDS[kind](split, items, options.codes, renderer)


# A row of an example, given a function that renders some sentences.
_ROWS: dict[str, Callable[..., tuple[str, ...]]] = {
  'nli': lambda item, text: (
    text(statement(item.premise)),
    text(statement(item.hypothesis)),
    item.label,
  ),
  'paraphrase': lambda item, text: (
    text(item.first),
    text(item.second),
    str(int(item.same)),
  ),
  'reviews': lambda item, text: (text(*item.sentences), item.label),
  'topics': lambda item, text: (text(*item.sentences), item.topic),
}


def _tsv(kind: str) -> Callable[..., Files]:
  """Writes the rows of `_ROWS`."""

  def write(split, items, codes, renderer):
    for code in codes:

      def text(*sentences, code=code):
        return renderer.join((renderer.text(s, code) for s in sentences), code)

      rows = (_ROWS[kind](item, text) for item in items)
      yield f'{kind}/{split}.{code}.tsv', formats.tsv(rows)

  return write


def _words(kind: str, ending: str, form: Callable[..., str]):
  """Writes rendered sentences in a form of words a line."""

  def write(split, items, codes, renderer):
    for code in codes:
      rendered = (renderer(item, code) for item in items)
      yield f'{kind}/{split}.{code}.{ending}', form(rendered, split)

  return write


def _qa(split, items, codes, renderer) -> Files:
  for code in codes:
    yield f'qa/{split}.{code}.json', _squad(split, items, code, code, renderer)
  if split == 'train':
    return
  for code in codes[1:]:
    for context, question in ((code, codes[0]), (codes[0], code)):
      yield (
        f'qa/{split}.{context}-{question}.json',
        _squad(split, items, context, question, renderer),
      )


def _squad(
  split: str, items: Sequence, code: str, asked_in: str, renderer: Renderer
) -> str:
  paragraphs = []
  for number, item in enumerate(items):
    context, answers = examples.contexts(item, renderer, code)
    paragraphs.append(
      {
        'context': context,
        'qas': [
          {
            'id': f'{split}-{number}-{i}',
            'question': renderer.text(query.question, asked_in),
            'answers': [
              {'text': answer, 'answer_start': context.index(answer)}
            ],
          }
          for i, (query, answer) in enumerate(
            zip(item.queries, answers, strict=True)
          )
        ],
      }
    )
  return formats.squad(paragraphs)


def _alignment(split, items, codes, renderer) -> Files:
  for code in codes[1:]:
    pairs = [(renderer(item, codes[0]), renderer(item, code)) for item in items]
    name = f'alignment/{split}.{codes[0]}-{code}'
    yield f'{name}.txt', formats.alignment_text(pairs)
    yield (
      f'{name}.gold',
      formats.alignment_links(links(first, second) for first, second in pairs),
    )


def _bucc(split, items, codes, renderer) -> Files:
  """A third of the sentences on both sides, a third on each alone."""
  count = len(items) // 3
  for code in codes[1:]:
    name = f'bucc/{code}-{codes[0]}.{split}'
    ids = []
    for side, others in (
      (code, items[count : 2 * count]),
      (codes[0], items[2 * count :]),
    ):
      order = list(range(2 * count))
      Draws('bucc', split, code, side).shuffle(order)
      held = [*items[:count], *others]
      names = {
        item: f'{side}-{place:09}' for place, item in enumerate(order, start=1)
      }
      ids.append(names)
      yield (
        f'{name}.{side}',
        formats.tsv(
          (names[item], renderer.text(held[item], side)) for item in order
        ),
      )
    gold = sorted((ids[0][i], ids[1][i]) for i in range(count))
    yield f'{name}.gold', formats.tsv(gold)


def _tatoeba(split, items, codes, renderer) -> Files:
  for code in codes[1:]:
    for side in (code, codes[0]):
      yield (
        f'tatoeba/{split}.{code}-{codes[0]}.{side}',
        formats.lines(renderer.text(item, side) for item in items),
      )
  sampler = Sampler(Draws('tatoeba', split, 'altered'))
  others = [alterations.altered(sampler, item) for item in items]
  yield from alike_files.altered(split, others, codes, renderer)


_KINDS: dict[str, Callable[..., Files]] = {
  **{kind: _tsv(kind) for kind in _ROWS},
  'pos': _words('pos', 'conllu', formats.conllu),
  'trees': _words('trees', 'conllu', formats.conllu),
  'ner': _words('ner', 'iob2', formats.iob2),
  'qa': _qa,
  'alignment': _alignment,
  'bucc': _bucc,
  'tatoeba': _tatoeba,
  'choices': alike_files.choices,
  'unanswerable': alike_files.unanswerable,
  'similarity': alike_files.similarity,
  'pairs': alike_files.pairs,
  'ranking': alike_files.ranking,
}
