"""The files of choices, rated pairs, rankings, open questions."""

import json
from collections.abc import Iterable, Iterator

from studies.synthetic import alterations, formats
from studies.synthetic.meaning import Sentence
from studies.synthetic.questions import ROLES
from studies.synthetic.rendering import Rendered, Renderer

Files = Iterator[tuple[str, str]]


def choices(split: str, items, codes, renderer: Renderer) -> Files:
  """XCOPA's lines."""
  for code in codes:
    rows = (
      {
        'premise': renderer.text(item.premise, code),
        'choice1': renderer.text(item.choices[0], code),
        'choice2': renderer.text(item.choices[1], code),
        'question': 'effect',
        'label': item.right,
        'idx': number,
      }
      for number, item in enumerate(items)
    )
    yield f'choices/{split}.{code}.jsonl', _json_lines(rows)


def similarity(split: str, items, codes, renderer: Renderer) -> Files:
  """A sentence, one in the first language, and a rating."""
  yield from _rated(
    'similarity', split, items, codes, renderer, lambda i: i.rating
  )


def pairs(split: str, items, codes, renderer: Renderer) -> Files:
  """A sentence, one in the first language, and 1 for a translation, else 0."""
  yield from _rated(
    'pairs',
    split,
    items,
    codes,
    renderer,
    lambda i: int(i.rating == alterations.HIGHEST),
  )


def _rated(kind, split, items, codes, renderer, score) -> Files:
  for code in codes[1:]:
    rows = (
      (
        renderer.text(item.first, code),
        renderer.text(item.second, codes[0]),
        str(score(item)),
      )
      for item in items
    )
    yield f'{kind}/{split}.{code}-{codes[0]}.tsv', formats.tsv(rows)


def ranking(split: str, items, codes, renderer: Renderer) -> Files:
  """Queries in the first language; their translations are relevant."""
  for code in codes[1:]:
    for side, name, letter in (
      (codes[0], 'queries', 'q'),
      (code, 'documents', 'd'),
    ):
      rows = (
        {
          '_id': f'{letter}{number}',
          'text': renderer.text(item, side),
          'language': side,
        }
        for number, item in enumerate(items)
      )
      yield f'ranking/{split}/{code}/{name}.jsonl', _json_lines(rows)
    relevance = (f'q{number} 0 d{number} 1' for number in range(len(items)))
    yield f'ranking/{split}/{code}/relevance.tsv', formats.lines(relevance)


def unanswerable(split: str, items, codes, renderer: Renderer) -> Files:
  """SQuAD v2: a question that the sentence does not answer has no answer."""
  for code in codes:
    paragraphs = []
    for number, (sentence, query) in enumerate(items):
      rendered = renderer(sentence, code)
      answers = _answers(rendered, ROLES[query.role])
      question = {
        'id': f'{split}-{number}',
        'question': renderer.text(query.question, code),
        'is_impossible': not answers,
        'answers': answers,
      }
      paragraphs.append({'context': rendered.text, 'qas': [question]})
    yield (
      f'unanswerable/{split}.{code}.json',
      formats.squad(paragraphs, version='v2.0'),
    )


def _answers(rendered: Rendered, key: str) -> list[dict]:
  if not any(node.key == key for node in rendered.nodes):
    return []
  answer = rendered.phrase(key)
  return [{'text': answer, 'answer_start': rendered.text.index(answer)}]


def altered(
  split: str, sentences: Iterable[Sentence], codes, renderer: Renderer
) -> Files:
  """What xsim++ puts beside the sentences of the first language."""
  yield (
    f'tatoeba/{split}.{codes[0]}.altered',
    formats.lines(renderer.text(one, codes[0]) for one in sentences),
  )


def _json_lines(rows: Iterable[dict]) -> str:
  return formats.lines(json.dumps(row, ensure_ascii=False) for row in rows)
