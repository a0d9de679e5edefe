"""A small folder in the format of XTREME's download script, with gold labels.

The vocabulary has fifty words. Words with odd numbers are the same in all
languages, and the other words end in the language's code. The tag, the entity
and the pair label of a word depend on its number alone, so that a small model
learns a part of them and makes some errors.
"""

import json
import pathlib
import random

from xlflax.data.supervised.sources import xtreme

_TAGS = ('NOUN', 'VERB', 'ADJ', 'SCONJ', 'SYM', 'X')
_ENTITIES = ('PER', 'LOC', 'ORG')
_CLASSES = {
  'xnli': ('entailment', 'neutral', 'contradiction'),
  'pawsx': ('0', '1'),
}
_SYLLABLES = 'ba de fi go lu ma ne pi ro su'.split()
SIZES = {xtreme.TRAIN: 200, xtreme.VALIDATION: 20, xtreme.TEST: 12}


def make_word(number: int, language: str) -> str:
  """Returns the word with a number from 0 to 49."""
  stem = _SYLLABLES[number // 10] + _SYLLABLES[number % 10]
  return stem if number % 2 or language == 'en' else stem + language


class Folder:
  """Writes the files of the tasks.

  Attributes:
    data: XTREME's folder of data sets. Its test sets contain the labels.
    gold: Folder of labels that XTREME's `evaluate.py` reads.
  """

  def __init__(self, root: pathlib.Path, *, seed: int = 0):
    self.data, self.gold = root / 'download', root / 'labels'
    self._draw = random.Random(seed)

  def write(self) -> None:
    for task in xtreme.TASKS.values():
      write = {
        'tsv': self._classes,
        'conll': self._tags,
        'conll_iob2': self._tags,
        'squad': self._questions,
      }.get(task.format, self._pairs)
      for split, size in SIZES.items():
        for part in task.parts(split):
          language = part.removesuffix('-en')
          write(task, split, language, 3 * size if task.is_mined else size)

  def _numbers(self, minimum: int = 4, maximum: int = 9) -> list[int]:
    return [
      self._draw.randrange(50)
      for _ in range(self._draw.randint(minimum, maximum))
    ]

  def _sentence(self, numbers, language: str) -> str:
    return ' '.join(make_word(number, language) for number in numbers)

  def _save(self, path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding='utf-8')

  def _save_gold(self, task, language: str, text: str) -> None:
    name = f'test-{language}.{task.example.ENDING}'
    self._save(self.gold / task.name / name, text)

  def _classes(self, task, split, language, size) -> None:
    classes = _CLASSES[task.name]
    lines = []
    for _ in range(size):
      first, second = self._numbers(), self._numbers()
      label = classes[second[0] % len(classes)]
      texts = (
        self._sentence(sentence, language) for sentence in (first, second)
      )
      lines.append('\t'.join((*texts, label)))
    (path,) = task.files[split]
    self._save(self.data / path.format(language), '\n'.join(lines) + '\n')
    if split == xtreme.TEST:
      gold = ''.join(line.split('\t')[2] + '\n' for line in lines)
      self._save_gold(task, language, gold)

  def _tag(self, task, number: int, before: int | None) -> str:
    if task.name == 'udpos':
      return _TAGS[number % len(_TAGS)]
    if number % 5 == 2:
      return 'O'
    kind = number % 3
    follows = before is not None and before % 5 != 2 and before % 3 == kind
    return f'{"I" if follows else "B"}-{_ENTITIES[kind]}'

  def _tags(self, task, split, language, size) -> None:
    sentences = []
    for _ in range(size):
      numbers = self._numbers()
      tags = [
        self._tag(task, number, before)
        for number, before in zip(numbers, [None, *numbers], strict=False)
      ]
      tokens = (make_word(number, language) for number in numbers)
      sentences.append(list(zip(tokens, tags, strict=True)))

    def text(of_line: str) -> str:
      return '\n'.join(
        ''.join(of_line.format(*pair) for pair in sentence)
        for sentence in sentences
      )

    path = task.files[split][0].format(language)
    self._save(self.data / path, text('{0}\t{1}\n'))
    if split == xtreme.TEST:
      self._save_gold(task, language, text('{1}\n'))

  def _question(self, language: str, name: str) -> dict:
    numbers = self._numbers(12, 20)
    position = self._draw.randrange(len(numbers) - 2)
    context = self._sentence(numbers, language) + '.'
    spans = [(position + 1, position + 2), (position + 1, position + 3)]
    answers = [
      {
        'text': self._sentence(numbers[first:last], language),
        'answer_start': len(self._sentence(numbers[:first], language)) + 1,
      }
      for first, last in spans
    ]
    question = {
      'id': name,
      'question': f'{make_word(numbers[position], language)}?',
      'answers': answers,
    }
    return {'paragraphs': [{'context': context, 'qas': [question]}]}

  def _questions(self, task, split, language, size) -> None:
    text = json.dumps(
      {
        'version': '1',
        'data': [
          self._question(language, f'{task.name}-{split}-{language}-{i}')
          for i in range(size)
        ],
      }
    )
    self._save(self.data / task.files[split][0].format(language), text)
    if split == xtreme.TEST:
      self._save_gold(task, language, text)

  def _pairs(self, task, split, language, size) -> None:
    if split not in task.files:
      return
    numbers = [self._numbers() for _ in range(size)]
    # Tatoeba's English files are sorted; the other side keeps its order.
    english = sorted(
      (self._sentence(n, 'en'), i) for i, n in enumerate(numbers)
    )
    sides = (
      [self._sentence(n, language) for n in numbers],
      [t for t, _ in english],
    )
    pairs = [(i, position) for position, (_, i) in enumerate(english)]
    if task.name == 'bucc2018':
      pairs = sorted(self._draw.sample(pairs, size // 2))
      gold = ''.join(f'{language}-{i:05}\ten-{j:05}\n' for i, j in pairs)
      ids = [f'{side}-{{:05}}\t' for side in (language, 'en')]
    else:
      gold, ids = ''.join(f'{i}\n' for i, _ in pairs), ['', '']
    for path, prefix, texts in zip(task.files[split], ids, sides, strict=False):
      lines = (prefix.format(i) + text + '\n' for i, text in enumerate(texts))
      self._save(self.data / path.format(language), ''.join(lines))
    path = task.gold if split == xtreme.TEST else task.files[split][2]
    self._save(self.data / path.format(language), gold)
    if split == xtreme.TEST:
      self._save_gold(task, language, gold)
