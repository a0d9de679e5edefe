"""Text, vocabularies and token caches that the experiments use.

Each language, vocabulary and cache is written once and then reused by all runs.
"""

import dataclasses
import enum
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from studies.replication import test_sets
from studies.synthetic import generator, options, sources, typology
from xlflax.data.cache import cache_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.supervised import label_sets
from xlflax.data.supervised.labeled_examples.tagging_examples import (
  TaggedSentence,
)
from xlflax.data.supervised.sources.example_source import FileDataset
from xlflax.data.tokenizers import vocabulary_training
from xlflax.data.tokenizers.base_vocabulary import DESCRIPTION_FILE, Vocabulary
from xlflax.data.tokenizers.vocabulary_config import Anchors

FIRST_LANGUAGE, SECOND_LANGUAGE = 'en', 'xx'
# Data that no experiment reads. The generator requires a few examples of each.
_UNUSED_DATA = ('nli', 'paraphrase', 'reviews', 'trees', 'ner', 'qa', 'bucc')
_NUM_UNUSED_EXAMPLES = 4
_NUM_TEST_SENTENCES = 300  # Tagged test sentences per language.
_NUM_INFERENCE_EXAMPLES = 3000  # Premise-hypothesis pairs for training.
_NUM_ALIGNED_PAIRS = 100  # Sentence pairs with gold word alignments.


class TextVariant(enum.Enum):
  """Variant of an experiment's training text and translation pairs."""

  SAME_DOMAIN = 'same_domain'
  # Nine tenths of the text are about the other topic.
  OTHER_DOMAIN = 'other_domain'
  # Negative control: the text of SAME_DOMAIN with pairs of unrelated sentences.
  WRONG_PAIRS = 'wrong_pairs'
  # Real languages only: the text of all languages is about one topic.
  SAME_PAGES = 'same_pages'


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticSpec:
  """Specification of the synthetic languages that an experiment reads.

  Attributes:
    sentences: Number of monolingual lines per language.
    pairs: Number of translation pairs.
    examples: Number of labeled sentences for training taggers.
    held_out: Number of test pairs, which is also the number of labeled test
      sentences.
    anchors: Fraction of the content words that are spelled identically in both
      languages.
    merges: Number of BPE merges per language when the vocabulary is trained.
      With enough merges, each word is a single token.
  """

  sentences: int = 4000
  pairs: int = 2000
  examples: int = 600
  held_out: int = 800
  anchors: float = 0.1
  merges: int = 650

  def create_data(self, work: pathlib.Path, text: TextVariant) -> 'StudyData':
    """Creates the experiment data that this specification describes."""
    return StudyData(work, text, self)

  def restrict_to(self, chain: Any) -> 'SyntheticSpec':
    """Returns the specification unchanged: runs depend on all its fields."""
    del chain  # Every run depends on all synthetic data.
    return self


@dataclasses.dataclass(frozen=True)
class StudyData:
  """Experiment data in two synthetic languages, `en` and `xx`.

  The languages differ in script and in all words except the anchors. As in K et
  al. (2020) and Dufter and Schütze (2020), their grammar is the same. The
  subclass in `real_data` provides the same interface for real languages.

  Attributes:
    work: Working directory to which all files are written.
    text: Variant of the training text.
    spec: Specification of the data, a `SyntheticSpec` or a `RealSpec`.
  """

  work: pathlib.Path
  text: TextVariant
  spec: Any

  CHARACTER_COVERAGE = 1.0  # Of the vocabularies.
  MAX_LENGTH = 16  # Tokens per sentence.
  NUM_TEST_PAIRS = 200  # Translations among which retrieval searches.

  @property
  def other_languages(self) -> tuple[str, ...]:
    """Languages of the experiment except the first one."""
    return (SECOND_LANGUAGE,)

  @property
  def folder(self) -> pathlib.Path:
    """Folder that contains the synthetic languages in this text variant."""
    return self.work / 'languages' / self.text.value

  @property
  def corpus(self) -> str:
    """Path of the corpus directory in `folder`."""
    return str(self.folder / 'corpus')

  def write(self) -> None:
    """Writes the languages' files unless they exist."""
    options_match = (self.folder / 'done').exists() and (
      generator.read_options(self.folder) == self._generator_options()
    )
    if options_match:
      return

    generator.write_languages(self.folder, self._generator_options())
    if self.text is TextVariant.WRONG_PAIRS:
      test_sets.misalign_pairs(
        self.folder
        / 'corpus'
        / 'parallel'
        / f'{FIRST_LANGUAGE}-{SECOND_LANGUAGE}.tsv'
      )
    (self.folder / 'done').touch()

  def with_same_domain(self) -> 'StudyData':
    """Returns the experiment data with the text variant SAME_DOMAIN.

    Vocabularies are trained on this variant.
    """
    return dataclasses.replace(self, text=TextVariant.SAME_DOMAIN)

  def prepare_vocabulary(self, anchors: Anchors | None) -> pathlib.Path:
    """Trains a vocabulary, unless it already exists.

    Args:
      anchors: Method of sharing the vocabulary between the languages. If None,
        the vocabulary is trained only on the first language.

    Returns:
      The directory of the vocabulary.
    """
    self.write()
    path = self.folder / f'vocabulary_{_anchors_name(anchors)}'
    if (path / DESCRIPTION_FILE).exists():
      return path

    corpus = Corpus(self.corpus)
    merges = self.spec.merges
    if anchors is None:
      corpus = Corpus(_copy_first_language(self.folder))
      anchors = Anchors.JOINT
    elif anchors is Anchors.JOINT:
      merges *= 1 + len(self.other_languages)
    vocabulary_training.train_vocabulary(
      corpus,
      path,
      anchors=anchors,
      merges=merges,
      model_type='bpe',
      character_coverage=self.CHARACTER_COVERAGE,
      num_threads=1,
    )
    return path

  def prepare_cache(self, anchors: Anchors | None) -> pathlib.Path:
    """Writes the token cache of all mixtures, unless it already exists.

    Args:
      anchors: Method of sharing the vocabulary, as in `prepare_vocabulary`.

    Returns:
      The directory of the cache.
    """
    path = self.folder / f'cache_{_anchors_name(anchors)}'
    if (path / 'done').exists():
      return path

    mixtures = ['corpus.mono.en']
    if anchors is not None:
      mixtures += ['corpus.mono', 'corpus.parallel']
    dictionaries = pathlib.Path(self.corpus) / 'dictionaries'
    if anchors is Anchors.JOINT and dictionaries.exists():
      mixtures.append('corpus.code_switched')
    vocabulary = self.with_same_domain().prepare_vocabulary(anchors)
    plan = cache_writer.Plan(
      directory=path,
      mixtures=mixtures,
      vocabulary=Vocabulary.load(vocabulary),
      open_tasks=functools.partial(CorpusTasks, self.corpus),
    )
    cache_writer.write_cache(plan)
    (path / 'done').touch()
    return path

  def tagged_sentences(self, split: str, *languages: str) -> FileDataset:
    """Returns sentences in a language with part-of-speech tags.

    Args:
      split: Data split: 'train' or 'test'. Only the first `_NUM_TEST_SENTENCES`
        sentences of each test file are returned.
      *languages: Language codes.
    """
    dataset = sources.labeled_dataset(
      self.folder, 'pos', split, languages=languages
    )
    if split == 'train':
      return dataset
    files = {
      language: test_sets.truncate_blocks(
        pathlib.Path(str(path)), _NUM_TEST_SENTENCES
      )
      for language, path in dataset.files.items()
    }
    return dataclasses.replace(dataset, files=files)

  @property
  def aligned_sentences(self) -> FileDataset:
    """Word-aligned translation pairs. The second sentence's words are shuffled.

    In the original order, aligned words are at the same positions, so even an
    untrained model would align them.
    """
    name = f'{FIRST_LANGUAGE}-{SECOND_LANGUAGE}'
    dataset = sources.labeled_dataset(self.folder, 'alignment', 'test')
    text, links = map(pathlib.Path, dataset.files[name])
    shuffled = test_sets.shuffle_second_sides(text, links, _NUM_ALIGNED_PAIRS)
    return dataclasses.replace(dataset, files={name: shuffled})

  @functools.cached_property
  def tagged_test_sentences(self) -> dict[str, list[TaggedSentence]]:
    """Map from language to the test sentences with part-of-speech tags."""
    return {
      language: [
        sentence
        for sentence in self.tagged_sentences('test', language).load(language)
        if isinstance(sentence, TaggedSentence)
      ]
      for language in (FIRST_LANGUAGE, *self.other_languages)
    }

  def inference_examples(self, split: str, language: str) -> FileDataset:
    """Returns examples for natural language inference (NLI) in a language.

    At the first call, they are written to a separate folder that contains no
    other data but has the same vocabulary.

    Args:
      split: Data split: 'train' or 'test'.
      language: Language code.
    """
    folder = self.work / 'languages' / 'inference'
    if not (folder / 'done').exists():
      generator.write_languages(folder, self._inference_options())
      (folder / 'done').touch()
    return sources.labeled_dataset(folder, 'nli', split, languages=(language,))

  @functools.cached_property
  def tags(self) -> tuple[str, ...]:
    """Part-of-speech tags that occur in the tagged sentences."""
    return label_sets.labels_of(self.tagged_sentences('train', FIRST_LANGUAGE))

  def held_out_translations(self, language: str) -> list[tuple[str, str]]:
    """Returns held-out translation pairs that share only punctuation.

    Args:
      language: Language of the second sentence of each pair.
    """
    sides = [
      (
        self.folder / 'tatoeba' / f'test.{language}-{FIRST_LANGUAGE}.{code}'
      ).read_text(encoding='utf-8')
      for code in (FIRST_LANGUAGE, language)
    ]
    pairs = zip(*(side.splitlines() for side in sides), strict=True)
    return [
      (first, second)
      for first, second in pairs
      if not any(
        word.isalnum() for word in {*first.split()} & {*second.split()}
      )
    ]

  def measure_corpus(self, vocabulary: Vocabulary | None) -> dict[str, float]:
    """Returns {}, because synthetic languages need no corpus statistics."""
    del vocabulary  # Synthetic languages need no such statistics.
    return {}

  def shared_words(self, language: str) -> frozenset[str]:
    """Returns tagged test words that a language shares with the first language.

    Args:
      language: Language that is compared with the first language.
    """
    first_words, second_words = (
      {
        word
        for sentence in self.tagged_test_sentences[code]
        for word in sentence.words
      }
      for code in (FIRST_LANGUAGE, language)
    )
    return frozenset(first_words & second_words)

  def dictionary(self) -> pathlib.Path:
    """Returns the path of a MUSE-format dictionary of all content words."""
    return self._write_dictionary('dictionary', lambda words: words)

  def shuffled_dictionary(self) -> pathlib.Path:
    """Returns the path of a dictionary with wrong translations."""
    return self._write_dictionary(
      'shuffled_dictionary', lambda words: [*words[1:], words[0]]
    )

  def _write_dictionary(
    self, folder: str, reorder: Callable[[list[str]], Sequence[str]]
  ) -> pathlib.Path:
    """Writes a dictionary with permuted translations unless it exists."""
    name = f'{FIRST_LANGUAGE}-{SECOND_LANGUAGE}'
    path = self.folder / folder / f'{name}.txt'
    if path.exists():
      return path

    pairs = [
      line.split()
      for split in ('train', 'test')
      for line in (self.folder / 'dictionaries' / f'{name}.{split}.txt')
      .read_text(encoding='utf-8')
      .splitlines()
    ]
    translations = reorder([translation for _, translation in pairs])
    lines = [
      f'{word} {translation}\n'
      for (word, _), translation in zip(pairs, translations, strict=True)
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(''.join(lines), encoding='utf-8')
    return path

  def _inference_options(self) -> options.SyntheticOptions:
    """Returns the generator options for the folder with inference examples."""
    generator_options = self._generator_options()
    sizes = {
      f'{kind}/{split}': _NUM_UNUSED_EXAMPLES
      for kind in (*options.CORPUS_KINDS, *options.FAMILIES)
      for split in generator_options.splits(kind)
    }
    sizes |= {
      'nli/train': _NUM_INFERENCE_EXAMPLES,
      'nli/test': _NUM_TEST_SENTENCES,
    }
    return dataclasses.replace(
      generator_options, sizes=sizes, hard_inference=0.0, domain_shift=0.0
    )

  def _generator_options(self) -> options.SyntheticOptions:
    """Returns the generator options for the languages in this text variant."""
    sizes = {
      f'{kind}/{split}': _NUM_UNUSED_EXAMPLES
      for kind in _UNUSED_DATA
      for split in options.SPLITS
      if (kind, split) != ('bucc', 'train')
    }
    is_shifted = self.text is TextVariant.OTHER_DOMAIN
    return options.SyntheticOptions(
      languages=typology.parse_languages(
        (FIRST_LANGUAGE, SECOND_LANGUAGE), (f'{SECOND_LANGUAGE}.script=greek',)
      ),
      sentences=self.spec.sentences,
      pairs=self.spec.pairs,
      examples=self.spec.examples,
      held_out=self.spec.held_out,
      anchors=self.spec.anchors,
      domain_shift=0.8 if is_shifted else 0.0,
      sizes=sizes,
    )


def _anchors_name(anchors: Anchors | None) -> str:
  return 'first_language' if anchors is None else anchors.value


def _copy_first_language(folder: pathlib.Path) -> str:
  """Copies the first language's text to a separate corpus."""
  copy = folder / 'first_language'
  target = copy / 'mono' / f'{FIRST_LANGUAGE}.txt'
  if not target.exists():
    target.parent.mkdir(parents=True, exist_ok=True)
    source = folder / 'corpus' / 'mono' / f'{FIRST_LANGUAGE}.txt'
    target.write_bytes(source.read_bytes())
  return str(copy)
