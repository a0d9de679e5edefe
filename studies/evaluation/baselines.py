"""Trivial baselines of docs/measured/evaluation.md: what needs no model.

  python -m studies.evaluation.baselines --data DATA --files FILES \\
      --output baselines.json

FILES is what splits.py wrote. The output has, for each task, baseline and
part, a score in the unit of `xlflax evaluate`.
"""

import argparse
import collections
import json
import pathlib
import random
import unicodedata

from xlflax.data.supervised.sources import example_source
from xlflax.evaluation.metrics import (
  alignment_error_rate,
  parsing_metrics,
  qa_metrics,
  tagging_metrics,
  translation_metrics,
)

DRAWS = 20
QUESTIONS = 100  # of a file, as qa.gin has them
TATOEBA = {
  'ara': 'ar',
  'cmn': 'zh',
  'deu': 'de',
  'fra': 'fr',
  'hin': 'hi',
  'jpn': 'ja',
  'rus': 'ru',
  'spa': 'es',
  'swh': 'sw',
  'tur': 'tr',
}
Tree = collections.namedtuple('Tree', 'heads relations')


def majority(train: list[str], gold: list[str]) -> float:
  """Accuracy of the training set's most frequent class."""
  return gold.count(most_common(train)) / len(gold)


def most_common(values) -> str:
  return collections.Counter(values).most_common(1)[0][0]


def shape(word: str) -> str:
  """Kinds of the first and last character: 'Abc' -> 'LuLl', '.' -> 'PoPo'."""
  return unicodedata.category(word[0]) + unicodedata.category(word[-1])


class Lexicon:
  """The most frequent label of each word in the training set.

  What an unseen word gets: 'majority', the most frequent label, or 'shape',
  that of the word's shape.
  """

  def __init__(
    self, words: list[str], labels: list[str], unseen: str = 'shape'
  ):
    by_word = collections.defaultdict(list)
    by_shape = collections.defaultdict(list)
    for word, label in zip(words, labels, strict=True):
      by_word[word.lower()].append(label)
      by_shape[shape(word)].append(label)
    self._words = {key: most_common(found) for key, found in by_word.items()}
    self._shapes = {
      key: most_common(found)
      for key, found in by_shape.items()
      if unseen == 'shape'
    }
    self._default = most_common(labels)

  def label(self, word: str) -> str:
    found = self._words.get(word.lower())
    return found or self._shapes.get(shape(word), self._default)


def chain(size: int, direction: str) -> tuple[int, ...]:
  """Heads of a tree that branches to the 'right' or to the 'left'.

  Right: each word hangs on the one before it; left: on the one after it.
  """
  if direction == 'right':
    return tuple(range(size))
  return (*range(2, size + 1), 0)


def chain_tree(example, lexicon: Lexicon, direction: str) -> Tree:
  heads = chain(len(example.words), direction)
  relations = tuple(
    'root' if head == 0 else lexicon.label(word)
    for head, word in zip(heads, example.words, strict=True)
  )
  return Tree(heads, relations)


def attachment(train, tests) -> dict[str, dict[str, dict[str, float]]]:
  """Branching trees with the lexicon's relations: metric -> kind -> part."""
  lexicon = Lexicon(
    [w for e in train for w in e.words], [r for e in train for r in e.relations]
  )
  found: dict[str, dict[str, dict[str, float]]] = {'uas': {}, 'las': {}}
  for direction in ('right', 'left'):
    scores = {
      part: parsing_metrics.attachment_scores(
        examples, [chain_tree(e, lexicon, direction) for e in examples]
      )
      for part, examples in tests.items()
    }
    for metric, by_kind in found.items():
      by_kind[f'{direction}-branching'] = {
        part: getattr(s, metric).value for part, s in scores.items()
      }
  return found


def units(text: str, language: str) -> tuple[list[str], str]:
  """Words and what joins them; characters of Chinese."""
  return (list(text), '') if language == 'zh' else (text.split(), ' ')


def random_spans(
  examples, lengths: list[int], rng: random.Random
) -> dict[str, str]:
  """A random span of each context, as long as some training answer."""
  found = {}
  for example in examples:
    words, space = units(example.context, example.language)
    length = min(rng.choice(lengths), len(words))
    start = rng.randrange(len(words) - length + 1)
    found[example.id] = space.join(words[start : start + length])
  return found


def span_f1(examples, lengths: list[int], rules: str) -> float:
  """F1 of random spans, a mean over draws."""
  gold = {e.id: [a.text for a in e.answers] for e in examples}
  scores = [
    qa_metrics.answer_scores(
      gold,
      random_spans(examples, lengths, random.Random(seed)),
      rules=rules,
      language=examples[0].language,
    ).f1.value
    for seed in range(DRAWS)
  ]
  return sum(scores) / DRAWS


def random_mining_f1(first: int, second: int, gold: int) -> float:
  """Expected F1 of giving each first sentence a random second one."""
  correct = gold / second
  return 2 * correct / (first + gold)


def diagonal(source_size: int, target_size: int) -> set[tuple[int, int]]:
  """Links along the diagonal, one for each word of the longer side."""
  size = max(source_size, target_size)
  return {
    (n * source_size // size, n * target_size // size) for n in range(size)
  }


def nearest_translations(
  train: list[tuple[str, str]], sources: list[str]
) -> list[str]:
  """Translation of the training sentence that shares most words (Jaccard)."""
  bags = [frozenset(text.split()) for text, _ in train]
  having = collections.defaultdict(list)
  for number, bag in enumerate(bags):
    for word in bag:
      having[word].append(number)
  found = []
  for text in sources:
    words = set(text.split())
    shared = collections.Counter(n for word in words for n in having[word])
    best = max(
      shared, default=0, key=lambda n: (shared[n] / len(words | bags[n]), -n)
    )
    found.append(train[best][1])
  return found


def read(format, files, **options):
  """Part -> examples with gold labels."""
  found = example_source.FileDataset(
    format=format,
    files={
      part: tuple(map(str, paths)) if isinstance(paths, tuple) else str(paths)
      for part, paths in files.items()
    },
    options=options,
  )
  return {part: found.load(part) for part in found.languages()}


def classification(train, tests) -> dict[str, dict[str, float]]:
  labels = [e.label for e in train]
  return {
    'majority': {
      part: majority(labels, [e.label for e in examples])
      for part, examples in tests.items()
    },
    'chance': {part: 1 / len(set(labels)) for part in tests},
  }


def tags(train, tests, score) -> dict[str, dict[str, float]]:
  def scores(unseen):
    lexicon = Lexicon(
      [w for e in train for w in e.words],
      [t for e in train for t in e.tags],
      unseen,
    )
    return {
      part: score(
        [e.tags for e in examples],
        [[lexicon.label(w) for w in e.words] for e in examples],
      )
      for part, examples in tests.items()
    }

  most = most_common(t for e in train for t in e.tags)
  return {
    'majority': {
      part: score(
        [e.tags for e in examples], [[most] * len(e.tags) for e in examples]
      )
      for part, examples in tests.items()
    },
    'word': scores('majority'),
    'word or shape': scores('shape'),
  }


def _treebanks(data, split):
  ud = data / 'ud'
  english = ud / 'UD_English-EWT' / 'en_ewt-ud'
  if split == 'train':
    return {'en': f'{english}-train.part.conllu'}
  return {
    'en': f'{english}-test.first600.conllu',
    'fr': ud / 'UD_French-GSD' / 'fr_gsd-ud-test.conllu',
    'ru': ud / 'UD_Russian-GSD' / 'ru_gsd-ud-test.first250.conllu',
    'zh': ud / 'UD_Chinese-GSDSimp' / 'zh_gsdsimp-ud-test.first250.conllu',
  }


def sentence_tasks(data, files):
  nli = data / 'nli'
  tests = {
    'en': nli / 'snli/en.test.first1500.tsv',
    'fr': nli / 'rte3_fr/fr.dev.tsv',
    'ja': nli / 'jsick/ja.test.first2000.tsv',
  }
  tests |= {
    code: nli / f'americasnli/{code}.dev.tsv'
    for code in ('aym', 'gn', 'nah', 'quy')
  }
  yield (
    'nli',
    classification(
      read('tsv', {'en': nli / 'snli/en.dev.tsv'})['en'], read('tsv', tests)
    ),
  )
  yield (
    'pawsx',
    classification(
      read('tsv', {'en': files / 'pawsx.en.train.tsv'})['en'],
      read(
        'tsv',
        {
          code: files / f'pawsx.{code}.test.tsv'
          for code in ('en', 'es', 'fr', 'zh')
        },
      ),
    ),
  )


def word_tasks(data, files):
  train, tests = (
    read('conllu_tags', _treebanks(data, split)) for split in ('train', 'test')
  )
  yield (
    'pos',
    tags(
      train['en'],
      tests,
      lambda gold, found: tagging_metrics.token_accuracy(gold, found).value,
    ),
  )
  folder = data / 'uner'
  yield (
    'ner',
    tags(
      read('uner', {'en': files / 'uner.en.train.iob2'})['en'],
      read(
        'uner',
        {
          'en': folder / 'UNER_English-EWT/en_ewt-ud-test.iob2',
          'pt': folder / 'UNER_Portuguese-Bosque/pt_bosque-ud-test.iob2',
          'zh': folder / 'UNER_Chinese-GSDSIMP/zh_gsdsimp-ud-test.iob2',
        },
      ),
      lambda gold, found: (
        tagging_metrics.entity_scores(
          gold, [tagging_metrics.repair_iob2(row) for row in found]
        ).overall.f1
      ),
    ),
  )
  train, tests = (
    read('conllu', _treebanks(data, split), subtypes='dropped')
    for split in ('train', 'test')
  )
  for metric, found in attachment(train['en'], tests).items():
    yield f'parsing_{metric}', found


def question_tasks(data, files):
  train = read('squad', {'en': files / 'tydiqa.en.train.json'})['en']
  texts = [example.answers[0].text for example in train if example.answers]
  # Chinese: about three characters for two English words.
  lengths = {'zh': [max(1, len(t.split()) * 3 // 2) for t in texts]}
  other = [len(text.split()) for text in texts]
  mlqa = {
    'es': 'context-es-question-es',
    'zh': 'context-zh-question-zh',
    'es-en': 'context-es-question-en',
  }
  sets = {
    'tydiqa': ('squad', {'en': files / 'tydiqa.en.test.json'}),
    'xquad': (
      'squad',
      {
        code: data / f'xquad/xquad.{code}.json'
        for code in ('en', 'es', 'ru', 'zh')
      },
    ),
    'mlqa': (
      'mlqa',
      {part: data / f'mlqa/dev-{name}.json' for part, name in mlqa.items()},
    ),
  }
  for name, (rules, paths) in sets.items():
    yield (
      name,
      {
        'random span': {
          part: span_f1(examples[:QUESTIONS], lengths.get(part, other), rules)
          for part, examples in read('squad', paths).items()
        }
      },
    )


def pair_tasks(data, files):
  folder = data / 'tatoeba'
  yield (
    'tatoeba',
    {
      'random': {
        TATOEBA[path.suffix[1:]]: 1
        / len(path.read_text(encoding='utf-8').rstrip('\n').split('\n'))
        for path in sorted(folder.glob('tatoeba.*'))
        if path.suffix[1:] in TATOEBA
      }
    },
  )
  for name, folder, stem in (
    ('mining_ntrex', data / 'bucc_style', '.dev'),
    ('mining_tatoeba', files, ''),
  ):
    prefix = 'tatoeba.' if name == 'mining_tatoeba' else ''
    found = {}
    for code in ('fr', 'zh'):
      start = folder / f'{prefix}{code}-en{stem}'
      sizes = [
        len(
          pathlib.Path(f'{start}.{side}')
          .read_text(encoding='utf-8')
          .rstrip('\n')
          .split('\n')
        )
        for side in (code, 'en', 'gold')
      ]
      found[code] = random_mining_f1(*sizes)
    yield name, {'random': found}
  gold = data / 'word_alignment'
  ugarit, sample = gold / 'ugarit_grc-eng', gold / 'simalign_sample'
  kftt = gold / 'awesome_align_examples'
  sets = read(
    'word_alignment',
    {
      'en-de': (
        sample / 'sample_eng.txt',
        sample / 'sample_deu.txt',
        sample / 'sample_eng_deu.gold',
      ),
      'grc-en': (ugarit / 'text_grc_eng.txt', ugarit / 'alignment_grc_eng.txt'),
    },
  )
  sets |= read(
    'word_alignment',
    {'ja-en': (kftt / 'jaen.src-tgt', kftt / 'jaen.gold')},
    first_index=1,
  )
  yield (
    'alignment',
    {
      'diagonal': {
        part: alignment_error_rate.alignment_scores(
          examples,
          [
            diagonal(len(e.source_words), len(e.target_words)) for e in examples
          ],
        ).error_rate
        for part, examples in sets.items()
      }
    },
  )
  yield 'translation', translations(files / 'en-ja')


def translations(corpus) -> dict[str, dict[str, float]]:
  def pairs(path):
    return [
      tuple(row.split('\t'))
      for row in path.read_text(encoding='utf-8').rstrip('\n').split('\n')
    ]

  sources, references = zip(
    *pairs(corpus / 'test/parallel/en-ja.tsv'), strict=True
  )
  outputs = {
    'copy': sources,
    'nearest training pair': nearest_translations(
      pairs(corpus / 'parallel/en-ja.tsv'), sources
    ),
  }
  return {
    name: {
      'en-ja': translation_metrics.bleu(
        found, [references], target_language='ja'
      ).value
    }
    for name, found in outputs.items()
  }


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name in ('data', 'files', 'output'):
    parser.add_argument(f'--{name}', required=True, type=pathlib.Path)
  args = parser.parse_args()
  scores = {
    name: found
    for tasks in (sentence_tasks, word_tasks, question_tasks, pair_tasks)
    for name, found in tasks(args.data, args.files)
  }
  args.output.write_text(json.dumps(scores, indent=2) + '\n')


if __name__ == '__main__':
  main()
