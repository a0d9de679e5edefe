"""Trivial baselines without a model, reported in docs/measured/evaluation.md.

  python -m studies.evaluation.baselines --data DATA --files FILES \\
      --output baselines.json

FILES is the output folder of splits.py. The output file maps each task,
baseline and language (or language pair) to a score, in the same unit as in
`xlflax evaluate`.
"""

import argparse
import collections
import json
import pathlib
import random
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from studies import command_line
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation.metrics import (
  alignment_error_rate,
  parsing_metrics,
  qa_metrics,
  tagging_metrics,
  translation_metrics,
)

NUM_DRAWS = 20
# Number of questions of each file. qa.gin has the same limit.
MAX_QUESTIONS = 100
# Map from the code in the file names of Tatoeba to the language code.
TATOEBA_LANGUAGES = {
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

# Map from language (or language pair) to score.
Scores = dict[str, float]
# Name of each task, with the scores of its baselines.
TaskScores = Iterator[tuple[str, dict[str, Scores]]]


class Tree(NamedTuple):
  """Dependency tree: each word's head (0 for the root) and relation label."""

  heads: tuple[int, ...]
  relations: tuple[str, ...]


def majority_accuracy(train: list[str], gold: list[str]) -> float:
  """Returns the accuracy of predicting the most frequent training class."""
  return gold.count(most_common_value(train)) / len(gold)


def most_common_value(values: Iterable[str]) -> str:
  """Returns the most frequent of several values."""
  return collections.Counter(values).most_common(1)[0][0]


def word_shape(word: str) -> str:
  """Returns the Unicode categories of a word's first and last characters.

  For example, 'LuLl' for 'Abc' and 'PoPo' for '.'.
  """
  return unicodedata.category(word[0]) + unicodedata.category(word[-1])


class Lexicon:
  """Baseline tagger that assigns each word its most frequent training label.

  Args:
    words: Words in the training set.
    labels: Label of each word in `words`.
    unseen: Prediction for words that are not in the training set: 'majority' is
      the most frequent label, and 'shape' is the most frequent label among
      words with the same shape.
  """

  def __init__(
    self, words: list[str], labels: list[str], unseen: str = 'shape'
  ):
    by_word = collections.defaultdict(list)
    by_shape = collections.defaultdict(list)
    for word, label in zip(words, labels, strict=True):
      by_word[word.lower()].append(label)
      by_shape[word_shape(word)].append(label)
    self._label_by_word = {
      word: most_common_value(word_labels)
      for word, word_labels in by_word.items()
    }
    self._label_by_shape = {
      shape: most_common_value(shape_labels)
      for shape, shape_labels in by_shape.items()
      if unseen == 'shape'
    }
    self._default = most_common_value(labels)

  def label(self, word: str) -> str:
    """Returns the predicted label of a word."""
    label = self._label_by_word.get(word.lower())
    return label or self._label_by_shape.get(word_shape(word), self._default)


def chain_heads(size: int, direction: str) -> tuple[int, ...]:
  """Returns the heads of a dependency tree in which the words form a chain.

  Args:
    size: Number of words.
    direction: Direction of the chain. With 'right', the head of each word is
      the previous word. With 'left', it is the next word.
  """
  if direction == 'right':
    return tuple(range(size))
  return (*range(2, size + 1), 0)


def chain_tree(example, lexicon: Lexicon, direction: str) -> Tree:
  """Returns a chain-shaped dependency tree, with relations from a lexicon."""
  heads = chain_heads(len(example.words), direction)
  relations = tuple(
    'root' if head == 0 else lexicon.label(word)
    for head, word in zip(heads, example.words, strict=True)
  )
  return Tree(heads, relations)


def attachment_baselines(train, tests) -> dict[str, dict[str, Scores]]:
  """Scores right-branching and left-branching chains as dependency parses.

  Args:
    train: Training examples. They determine the relation that is predicted for
      each word.
    tests: Map from language to test examples.

  Returns:
    Nested map from metric ('uas' or 'las') to baseline to scores.
  """
  lexicon = Lexicon(
    [word for example in train for word in example.words],
    [relation for example in train for relation in example.relations],
  )
  baselines: dict[str, dict[str, Scores]] = {'uas': {}, 'las': {}}
  for direction in ('right', 'left'):
    scores = {
      language: parsing_metrics.attachment_scores(
        examples,
        [chain_tree(example, lexicon, direction) for example in examples],
      )
      for language, examples in tests.items()
    }
    for metric, scores_by_baseline in baselines.items():
      scores_by_baseline[f'{direction}-branching'] = {
        language: getattr(attachment, metric).value
        for language, attachment in scores.items()
      }
  return baselines


def split_units(text: str, language: str) -> tuple[list[str], str]:
  """Returns a text's characters or words, and the separator to join them.

  The units are characters in Chinese and words in other languages.
  """
  return (list(text), '') if language == 'zh' else (text.split(), ' ')


def draw_random_spans(
  examples, lengths: list[int], rng: random.Random
) -> dict[str, str]:
  """Draws a random span of each example's context as the predicted answer.

  Args:
    examples: Question answering examples. The spans are drawn from their
      contexts.
    lengths: Span lengths to draw from, in characters or words (see
      `split_units`).
    rng: Random number generator.

  Returns:
    Map from an example's id to the span's text.
  """
  spans = {}
  for example in examples:
    units, separator = split_units(example.context, example.language)
    length = min(rng.choice(lengths), len(units))
    start = rng.randrange(len(units) - length + 1)
    spans[example.id] = separator.join(units[start : start + length])
  return spans


def random_span_f1(examples, lengths: list[int], rules: str) -> float:
  """Returns the mean F1 of answering questions with random spans.

  Args:
    examples: Questions in one language.
    lengths: Span lengths to draw from, in characters or words (see
      `split_units`).
    rules: Normalization rules for the metric (see `qa_metrics.answer_scores`).
  """
  gold = {
    example.id: [answer.text for answer in example.answers]
    for example in examples
  }
  scores = [
    qa_metrics.answer_scores(
      gold,
      draw_random_spans(examples, lengths, random.Random(seed)),
      rules=rules,
      language=examples[0].language,
    ).f1.value
    for seed in range(NUM_DRAWS)
  ]
  return sum(scores) / NUM_DRAWS


def expected_mining_f1(first: int, second: int, gold: int) -> float:
  """Returns the expected F1 of bitext mining that pairs sentences at random.

  Args:
    first: Number of sentences in the first collection.
    second: Number of sentences in the second collection.
    gold: Number of correct (gold) sentence pairs.
  """
  expected_matches = gold / second
  return 2 * expected_matches / (first + gold)


def diagonal_links(source_size: int, target_size: int) -> set[tuple[int, int]]:
  """Links words at equal relative positions in two sentences."""
  size = max(source_size, target_size)
  return {
    (n * source_size // size, n * target_size // size) for n in range(size)
  }


def nearest_translations(
  train: list[tuple[str, str]], sources: list[str]
) -> list[str]:
  """Translates sentences by copying the translations of similar sentences.

  Each source is translated as the training sentence whose set of words has the
  highest Jaccard similarity.

  Args:
    train: Training pairs of a source sentence and its translation.
    sources: Sentences to translate.
  """
  word_sets = [frozenset(text.split()) for text, _ in train]
  indices_by_word = collections.defaultdict(list)
  for index, word_set in enumerate(word_sets):
    for word in word_set:
      indices_by_word[word].append(index)

  translations = []
  for text in sources:
    source_words = set(text.split())
    overlaps = collections.Counter(
      index for word in source_words for index in indices_by_word[word]
    )
    nearest = max(
      overlaps,
      default=0,
      key=lambda index: (
        overlaps[index] / len(source_words | word_sets[index]),
        -index,
      ),
    )
    translations.append(train[nearest][1])
  return translations


def read_examples(
  format: str, files: Mapping[str, Any], **options: Any
) -> dict[str, Sequence]:
  """Reads the labeled examples of each language or language pair.

  Args:
    format: Name of the files' format, as in `FileDataset`.
    files: Map from language or language pair to a path or a tuple of paths.
    **options: Options for the format's reader.
  """
  dataset = example_source.FileDataset(
    format=format,
    files={
      language: tuple(map(str, paths))
      if isinstance(paths, tuple)
      else str(paths)
      for language, paths in files.items()
    },
    options=options,
  )
  return {language: dataset.load(language) for language in dataset.languages()}


def classification_baselines(train, tests) -> dict[str, Scores]:
  """Returns the accuracies of two baselines: majority class and random guess.

  Args:
    train: Training examples.
    tests: Map from language to test examples.
  """
  labels = [example.label for example in train]
  return {
    'majority': {
      language: majority_accuracy(
        labels, [example.label for example in examples]
      )
      for language, examples in tests.items()
    },
    'chance': {language: 1 / len(set(labels)) for language in tests},
  }


def tagging_baselines(
  train, tests, score: Callable[[list, list], float]
) -> dict[str, Scores]:
  """Returns the scores of a majority tagger and of two lexicon taggers.

  Args:
    train: Training examples.
    tests: Map from language to test examples.
    score: Function that computes a score from the gold tags and the predicted
      tags of all sentences.
  """

  def score_lexicon(unseen: str) -> Scores:
    """Scores a lexicon tagger with one method of labeling unseen words."""
    lexicon = Lexicon(
      [word for example in train for word in example.words],
      [tag for example in train for tag in example.tags],
      unseen,
    )
    return {
      language: score(
        [example.tags for example in examples],
        [
          [lexicon.label(word) for word in example.words]
          for example in examples
        ],
      )
      for language, examples in tests.items()
    }

  majority_tag = most_common_value(
    tag for example in train for tag in example.tags
  )
  return {
    'majority': {
      language: score(
        [example.tags for example in examples],
        [[majority_tag] * len(example.tags) for example in examples],
      )
      for language, examples in tests.items()
    },
    'word': score_lexicon('majority'),
    'word or shape': score_lexicon('shape'),
  }


def _treebank_files(data: pathlib.Path, split: str) -> dict[str, Any]:
  """Returns the treebank file for each language that has the given split."""
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


def score_sentence_tasks(data: pathlib.Path, files: pathlib.Path) -> TaskScores:
  """Yields the scores of the baselines for NLI and PAWS-X."""
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
    classification_baselines(
      read_examples('tsv', {'en': nli / 'snli/en.dev.tsv'})['en'],
      read_examples('tsv', tests),
    ),
  )
  yield (
    'pawsx',
    classification_baselines(
      read_examples('tsv', {'en': files / 'pawsx.en.train.tsv'})['en'],
      read_examples(
        'tsv',
        {
          code: files / f'pawsx.{code}.test.tsv'
          for code in ('en', 'es', 'fr', 'zh')
        },
      ),
    ),
  )


def score_word_tasks(data: pathlib.Path, files: pathlib.Path) -> TaskScores:
  """Yields the scores of the baselines for POS tagging, NER and parsing."""
  train, tests = (
    read_examples('conllu_tags', _treebank_files(data, split))
    for split in ('train', 'test')
  )
  yield (
    'pos',
    tagging_baselines(
      train['en'],
      tests,
      lambda gold, predicted: (
        tagging_metrics.token_accuracy(gold, predicted).value
      ),
    ),
  )
  folder = data / 'uner'
  yield (
    'ner',
    tagging_baselines(
      read_examples('uner', {'en': files / 'uner.en.train.iob2'})['en'],
      read_examples(
        'uner',
        {
          'en': folder / 'UNER_English-EWT/en_ewt-ud-test.iob2',
          'pt': folder / 'UNER_Portuguese-Bosque/pt_bosque-ud-test.iob2',
          'zh': folder / 'UNER_Chinese-GSDSIMP/zh_gsdsimp-ud-test.iob2',
        },
      ),
      lambda gold, predicted: (
        tagging_metrics.entity_scores(
          gold, [tagging_metrics.repair_iob2(tags) for tags in predicted]
        ).overall.f1
      ),
    ),
  )
  train, tests = (
    read_examples('conllu', _treebank_files(data, split), keep_subtypes=False)
    for split in ('train', 'test')
  )
  for metric, scores in attachment_baselines(train['en'], tests).items():
    yield f'parsing_{metric}', scores


def score_question_tasks(data: pathlib.Path, files: pathlib.Path) -> TaskScores:
  """Yields the scores of the baselines for extractive question answering."""
  train = read_examples('squad', {'en': files / 'tydiqa.en.train.json'})['en']
  texts = [example.answers[0].text for example in train if example.answers]
  num_words = [len(text.split()) for text in texts]
  # Three Chinese characters correspond to about two English words.
  lengths = {'zh': [max(1, length * 3 // 2) for length in num_words]}
  mlqa = {
    'es': 'context-es-question-es',
    'zh': 'context-zh-question-zh',
    'es-en': 'context-es-question-en',
  }
  test_sets = {
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
      {
        languages: data / f'mlqa/dev-{name}.json'
        for languages, name in mlqa.items()
      },
    ),
  }
  for name, (rules, paths) in test_sets.items():
    yield (
      name,
      {
        'random span': {
          language: random_span_f1(
            examples[:MAX_QUESTIONS], lengths.get(language, num_words), rules
          )
          for language, examples in read_examples('squad', paths).items()
        }
      },
    )


def score_pair_tasks(data: pathlib.Path, files: pathlib.Path) -> TaskScores:
  """Yields baseline scores for retrieval, mining, alignment and translation."""
  yield (
    'tatoeba',
    {
      'random': {
        TATOEBA_LANGUAGES[path.suffix[1:]]: 1 / len(_read_lines(path))
        for path in sorted((data / 'tatoeba').glob('tatoeba.*'))
        if path.suffix[1:] in TATOEBA_LANGUAGES
      }
    },
  )
  for name, folder, stem in (
    ('mining_ntrex', data / 'bucc_style', '.dev'),
    ('mining_tatoeba', files, ''),
  ):
    prefix = 'tatoeba.' if name == 'mining_tatoeba' else ''
    scores = {}
    for code in ('fr', 'zh'):
      base = folder / f'{prefix}{code}-en{stem}'
      sizes = [
        len(_read_lines(pathlib.Path(f'{base}.{suffix}')))
        for suffix in (code, 'en', 'gold')
      ]
      scores[code] = expected_mining_f1(*sizes)
    yield name, {'random': scores}
  gold = data / 'word_alignment'
  ugarit, sample = gold / 'ugarit_grc-eng', gold / 'simalign_sample'
  kftt = gold / 'awesome_align_examples'
  alignments = read_examples(
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
  alignments |= read_examples(
    'word_alignment',
    {'ja-en': (kftt / 'jaen.src-tgt', kftt / 'jaen.gold')},
    first_index=1,
  )
  yield (
    'alignment',
    {
      'diagonal': {
        pair: alignment_error_rate.alignment_scores(
          examples,
          [
            diagonal_links(len(example.source_words), len(example.target_words))
            for example in examples
          ],
        ).error_rate
        for pair, examples in alignments.items()
      }
    },
  )
  yield 'translation', translation_baselines(files / 'en-ja')


def translation_baselines(corpus: pathlib.Path) -> dict[str, Scores]:
  """Returns the BLEU of two baselines: copied sources and nearest neighbors.

  Args:
    corpus: Corpus directory with English and Japanese text (see splits.py).
  """

  def read_pairs(path: pathlib.Path) -> list[tuple[str, ...]]:
    return [tuple(line.split('\t')) for line in _read_lines(path)]

  sources, references = zip(
    *read_pairs(corpus / 'test/parallel/en-ja.tsv'), strict=True
  )
  outputs = {
    'copy': sources,
    'nearest training pair': nearest_translations(
      read_pairs(corpus / 'parallel/en-ja.tsv'), sources
    ),
  }
  return {
    name: {
      'en-ja': translation_metrics.bleu(
        translations, [references], target_language='ja'
      ).value
    }
    for name, translations in outputs.items()
  }


def _read_lines(path: pathlib.Path) -> list[str]:
  # `splitlines()` would also split at U+2028 and similar characters.
  return path.read_text(encoding='utf-8').rstrip('\n').split('\n')


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.evaluation.baselines', __doc__)
  for name, value_type, description in (
    ('data', command_line.input_directory, 'Folder of the data sets.'),
    ('files', command_line.input_directory, 'Output folder of splits.py.'),
    ('output', pathlib.Path, 'JSON file to write.'),
  ):
    parser.add_argument(
      f'--{name}', required=True, type=value_type, help=description
    )
  return command_line.run_command(parser, _write_scores, arguments)


def _write_scores(args: argparse.Namespace) -> None:
  """Computes the scores of all baselines and writes them to a file."""
  scores = {
    name: task_scores
    for score_tasks in (
      score_sentence_tasks,
      score_word_tasks,
      score_question_tasks,
      score_pair_tasks,
    )
    for name, task_scores in score_tasks(args.data, args.files)
  }
  args.output.write_text(json.dumps(scores, indent=2) + '\n')


if __name__ == '__main__':
  sys.exit(main())
