"""Synthetic data of the additional XTREME-R tasks, with gold labels.

The words are those of `xtreme_folder`. The correct choice of a premise repeats
two of its words. The description of an entity and the sentence of its mention
have most words in common. A question consists of two words of its answer.
"""

import json

from tests.official import xtreme_folder
from xlflax.data.supervised.sources import xtreme_tasks

_MENTIONS, _PARAGRAPHS = 12, 10


class Folder(xtreme_folder.Folder):
  """Writes the files of XCOPA, Tatoeba, Mewsli-X and LAReQA."""

  def write(self) -> None:
    xcopa = xtreme_tasks.R_TASKS['xcopa']
    for split, size in xtreme_folder.SIZES.items():
      for language in xcopa.parts(split):
        self._choices(xcopa, split, language, size)
    tatoeba = xtreme_tasks.R_TASKS['tatoeba']
    for part in tatoeba.parts(xtreme_tasks.TEST):
      language = part.removesuffix('-en')
      self._pairs(tatoeba, xtreme_tasks.TEST, language, 12)
    self._entities()
    self._answers()

  def _choices(self, task, split, language, size) -> None:
    lines = []
    for _ in range(size):
      premise, right, other = (self._numbers(4, 6) for _ in range(3))
      right[:2] = self._draw.sample(premise, 2)
      # The script of XTREME-R sets every label to 0, but this file has labels.
      label = self._draw.randrange(2)
      choices = [right, other] if label == 0 else [other, right]
      texts = [self._sentence(n, language) for n in (premise, *choices)]
      named = dict(zip(('premise', 'choice1', 'choice2'), texts, strict=True))
      lines.append(json.dumps(named | {'question': 'cause', 'label': label}))
    text = ''.join(f'{line}\n' for line in lines)
    (path,) = task.files[split]
    self._save(self.data / path.format(language), text)
    if split == xtreme_tasks.TEST:
      self._save_gold(task, language, text)

  def _entities(self) -> None:
    folder = self.data / 'mewslix'
    entities = {f'Q{i}': self._numbers(5, 9) for i in range(60)}
    texts = {
      name: self._sentence(entity, 'en') for name, entity in entities.items()
    }
    self._save_lines(
      folder / 'candidate_set_entities.jsonl',
      [
        {
          'entity_id': name,
          'description': text,
          'description_language': 'en',
          'sentence_spans': [{'start': 0, 'end': len(text)}],
        }
        for name, text in texts.items()
      ],
    )
    for language in xtreme_tasks.RANKED['mewslix'][1]:
      queries = [
        (f'{language}-{i}', self._draw.choice(list(entities)))
        for i in range(_MENTIONS)
      ]
      self._save_lines(
        folder / f'wikinews_mentions/test-{language}.jsonl',
        [
          self._article(name, entity, entities[entity], language)
          for name, entity in queries
        ],
      )
      self._save(
        self.gold / f'mewslix/test-{language}.json',
        json.dumps({name: [entity] for name, entity in queries}),
      )

  def _article(self, name, entity, numbers, language) -> dict:
    text = self._sentence(numbers[1:], language)
    return {
      'context': {
        'language': language,
        'text': text,
        'sentence_spans': [{'start': 0, 'end': len(text)}],
      },
      'mentions': [
        {
          'example_id': name,
          'entity_id': entity,
          'mention_span': {'start': 0, 'end': text.index(' ')},
        }
      ],
    }

  def _answers(self) -> None:
    paragraphs = [
      [self._numbers(4, 7) for _ in range(3)] for _ in range(_PARAGRAPHS)
    ]
    for language in xtreme_tasks.RANKED['lareqa'][1]:
      rows = [
        self._paragraph(sentences, number, language)
        for number, sentences in enumerate(paragraphs)
      ]
      self._save(
        self.data / f'lareqa/xquad-r/{language}.json',
        json.dumps({'data': [{'paragraphs': rows}]}),
      )

  def _paragraph(self, sentences, number, language) -> dict:
    texts = [f'{self._sentence(sentence, language)}.' for sentence in sentences]
    starts = [len(' '.join(texts[:i])) + (i > 0) for i in range(len(texts))]
    return {
      'context': ' '.join(texts),
      'sentence_breaks': [
        (start, start + len(text))
        for start, text in zip(starts, texts, strict=True)
      ],
      'qas': [
        {
          'id': f'{number}-{i}',
          'question': f'{self._sentence(sentence[:2], language)}?',
          'answers': [{'answer_start': start, 'text': texts[i]}],
        }
        for i, (sentence, start) in enumerate(
          zip(sentences, starts, strict=True)
        )
      ],
    }

  def _save_lines(self, path, rows) -> None:
    self._save(path, ''.join(f'{json.dumps(row)}\n' for row in rows))
