"""Files that are written for each task family in each language.

The paths and formats are described in docs/synthetic/files.md.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from studies.synthetic import examples, formats, similarity
from studies.synthetic.meaning import make_statement
from studies.synthetic.options import SyntheticOptions
from studies.synthetic.questions import ROLES
from studies.synthetic.random_generator import RandomGenerator
from studies.synthetic.rendering import Rendered, Renderer, align_words
from studies.synthetic.sampling import Sampler

# Path and content of each file.
Files = Iterator[tuple[str, str]]


def family_files(
  family: str, options: SyntheticOptions, renderer: Renderer
) -> Files:
  """Yields the path and the content of each file in a task family.

  Args:
    family: Name of the task family, one of `options.FAMILIES`.
    options: Options for the languages and their data.
    renderer: Renderer that turns meanings into text in each language.
  """
  items_by_split = examples.draw_examples(options, renderer, family)
  for split, items in items_by_split.items():
    yield from _FAMILY_WRITERS[family](split, items, options.codes, renderer)


# Columns of an example. The second argument renders sentences as one text.
_COLUMNS: dict[str, Callable[..., tuple[str, ...]]] = {
  'nli': lambda item, render: (
    render(make_statement(item.premise)),
    render(make_statement(item.hypothesis)),
    item.label,
  ),
  'paraphrase': lambda item, render: (
    render(item.first),
    render(item.second),
    str(int(item.is_paraphrase)),
  ),
  'reviews': lambda item, render: (render(*item.sentences), item.label),
  'topics': lambda item, render: (render(*item.sentences), item.topic),
}


def _tsv_writer(family: str) -> Callable[..., Files]:
  """Returns a function that yields TSV files with the columns in `_COLUMNS`."""

  def write(
    split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
  ) -> Files:
    for code in codes:

      def render(*sentences, code=code):
        return renderer.join(
          (renderer.text(sentence, code) for sentence in sentences), code
        )

      rows = (_COLUMNS[family](item, render) for item in items)
      yield f'{family}/{split}.{code}.tsv', formats.format_tsv(rows)

  return write


def _word_writer(
  family: str, suffix: str, format_sentences: Callable[..., str]
) -> Callable[..., Files]:
  """Returns a function that writes sentences with one word per line.

  Args:
    family: Name of the task family.
    suffix: Suffix of the file names, without the dot.
    format_sentences: Function in `formats` that takes the sentences and the
      name of the split, and returns the content of the file.
  """

  def write(
    split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
  ) -> Files:
    for code in codes:
      rendered = (renderer(item, code) for item in items)
      content = format_sentences(rendered, split)
      yield f'{family}/{split}.{code}.{suffix}', content

  return write


def _question_answering(
  split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
) -> Files:
  """Yields SQuAD files. Held-out data also contains cross-lingual questions."""
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
  split: str,
  items: Sequence,
  context_code: str,
  question_code: str,
  renderer: Renderer,
) -> str:
  """Returns a SQuAD file with paragraphs and questions in two languages."""
  paragraphs = []
  for number, item in enumerate(items):
    context, answers = examples.render_paragraph(item, renderer, context_code)
    paragraphs.append(
      {
        'context': context,
        'qas': [
          {
            'id': f'{split}-{number}-{i}',
            'question': renderer.text(query.question, question_code),
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
  return formats.format_squad(paragraphs)


def _alignment(
  split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
) -> Files:
  """Yields sentence pairs and their gold word alignments."""
  for code in codes[1:]:
    pairs = [(renderer(item, codes[0]), renderer(item, code)) for item in items]
    name = f'alignment/{split}.{codes[0]}-{code}'
    yield f'{name}.txt', formats.format_alignment_text(pairs)
    yield (
      f'{name}.gold',
      formats.format_alignment_links(
        align_words(first, second) for first, second in pairs
      ),
    )


def _bucc(
  split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
) -> Files:
  """Yields collections for bitext mining.

  One third of the items is in both languages' collections. Each of the other
  two thirds is in only one language's collection.
  """
  count = len(items) // 3
  for code in codes[1:]:
    name = f'bucc/{code}-{codes[0]}.{split}'
    ids_by_side = []
    for side, unpaired in (
      (code, items[count : 2 * count]),
      (codes[0], items[2 * count :]),
    ):
      collection = [*items[:count], *unpaired]
      order = list(range(2 * count))
      RandomGenerator('bucc', split, code, side).shuffle(order)
      ids = {
        index: f'{side}-{number:09}'
        for number, index in enumerate(order, start=1)
      }
      ids_by_side.append(ids)
      yield (
        f'{name}.{side}',
        formats.format_tsv(
          (ids[index], renderer.text(collection[index], side))
          for index in order
        ),
      )
    gold = sorted((ids_by_side[0][i], ids_by_side[1][i]) for i in range(count))
    yield f'{name}.gold', formats.format_tsv(gold)


def _tatoeba(
  split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
) -> Files:
  """Yields sentence pairs, and altered pivot-language sentences for xsim++."""
  for code in codes[1:]:
    for side in (code, codes[0]):
      yield (
        f'tatoeba/{split}.{code}-{codes[0]}.{side}',
        formats.format_lines(renderer.text(item, side) for item in items),
      )
  sampler = Sampler(RandomGenerator('tatoeba', split, 'altered'))
  altered = [similarity.alter_sentence(sampler, item) for item in items]
  yield (
    f'tatoeba/{split}.{codes[0]}.altered',
    formats.format_lines(
      renderer.text(sentence, codes[0]) for sentence in altered
    ),
  )


def _choices(
  split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
) -> Files:
  """Yields multiple-choice questions in the XCOPA format."""
  for code in codes:
    records = (
      {
        'premise': renderer.text(item.premise, code),
        'choice1': renderer.text(item.choices[0], code),
        'choice2': renderer.text(item.choices[1], code),
        'question': 'effect',
        'label': item.label,
        'idx': number,
      }
      for number, item in enumerate(items)
    )
    yield f'choices/{split}.{code}.jsonl', _json_lines(records)


def _similarity(
  split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
) -> Files:
  """Yields cross-lingual sentence pairs with similarity ratings."""
  yield from _rated_pairs(
    'similarity', split, items, codes, renderer, lambda item: item.rating
  )


def _pairs(
  split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
) -> Files:
  """Yields cross-lingual sentence pairs, labeled as translations or not."""
  yield from _rated_pairs(
    'pairs',
    split,
    items,
    codes,
    renderer,
    lambda item: int(item.rating == similarity.MAX_RATING),
  )


def _rated_pairs(
  family: str,
  split: str,
  items: Sequence,
  codes: Sequence[str],
  renderer: Renderer,
  score: Callable[[Any], float],
) -> Files:
  """Yields cross-lingual sentence pairs with scores.

  The second sentence of each pair is in the pivot language.
  """
  for code in codes[1:]:
    rows = (
      (
        renderer.text(item.first, code),
        renderer.text(item.second, codes[0]),
        str(score(item)),
      )
      for item in items
    )
    yield f'{family}/{split}.{code}-{codes[0]}.tsv', formats.format_tsv(rows)


def _ranking(
  split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
) -> Files:
  """Yields queries in the pivot language, documents and relevance judgments.

  The relevant document for a query is its translation.
  """
  for code in codes[1:]:
    for side, name, letter in (
      (codes[0], 'queries', 'q'),
      (code, 'documents', 'd'),
    ):
      records = (
        {
          '_id': f'{letter}{number}',
          'text': renderer.text(item, side),
          'language': side,
        }
        for number, item in enumerate(items)
      )
      yield f'ranking/{split}/{code}/{name}.jsonl', _json_lines(records)
    relevance = (f'q{number} 0 d{number} 1' for number in range(len(items)))
    yield (
      f'ranking/{split}/{code}/relevance.tsv',
      formats.format_lines(relevance),
    )


def _unanswerable(
  split: str, items: Sequence, codes: Sequence[str], renderer: Renderer
) -> Files:
  """Yields SQuAD v2 files. Some questions have no answer in their sentence."""
  for code in codes:
    paragraphs = []
    for number, (sentence, query) in enumerate(items):
      rendered = renderer(sentence, code)
      answers = _find_answers(rendered, ROLES[query.role])
      question = {
        'id': f'{split}-{number}',
        'question': renderer.text(query.question, code),
        'is_impossible': not answers,
        'answers': answers,
      }
      paragraphs.append({'context': rendered.text, 'qas': [question]})
    yield (
      f'unanswerable/{split}.{code}.json',
      formats.format_squad(paragraphs, version='v2.0'),
    )


def _find_answers(rendered: Rendered, key: str) -> list[dict]:
  """Returns the phrase with the given key as a SQuAD answer, or [] if none."""
  if not any(node.key == key for node in rendered.nodes):
    return []
  answer = rendered.phrase(key)
  return [{'text': answer, 'answer_start': rendered.text.index(answer)}]


def _json_lines(records: Iterable[dict]) -> str:
  return formats.format_lines(
    json.dumps(record, ensure_ascii=False) for record in records
  )


_FAMILY_WRITERS: dict[str, Callable[..., Files]] = {
  **{family: _tsv_writer(family) for family in _COLUMNS},
  'pos': _word_writer('pos', 'conllu', formats.format_conllu),
  'trees': _word_writer('trees', 'conllu', formats.format_conllu),
  'ner': _word_writer('ner', 'iob2', formats.format_iob2),
  'qa': _question_answering,
  'alignment': _alignment,
  'bucc': _bucc,
  'tatoeba': _tatoeba,
  'choices': _choices,
  'unanswerable': _unanswerable,
  'similarity': _similarity,
  'pairs': _pairs,
  'ranking': _ranking,
}
