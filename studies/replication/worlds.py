"""The languages, vocabularies and token caches of the experiments, made once."""

import dataclasses
import enum
import functools
import pathlib
from typing import Any

from studies.replication import held_out
from studies.synthetic import generator, sources, typology
from studies.synthetic import options as options_lib
from xlflax.data.cache import cache_writer
from xlflax.data.corpus import corpus_directory as corpus_lib
from xlflax.data.plain_text.corpus_directory_tasks import CorpusTasks
from xlflax.data.supervised import label_sets as labels_lib
from xlflax.data.supervised.labeled_examples.tagging_examples import (
  TaggedSentence,
)
from xlflax.data.supervised.sources import example_source as source_lib
from xlflax.data.tokenizers import vocabulary_training as vocabulary_training
from xlflax.data.tokenizers.base_vocabulary import DESCRIPTION_FILE, Vocabulary
from xlflax.data.tokenizers.vocabulary_config import Anchors

FIRST, SECOND = 'en', 'xx'
_UNUSED = ('nli', 'paraphrase', 'reviews', 'trees', 'ner', 'qa', 'bucc')
_FEW = 4
_TESTED = 300  # tagged sentences of each language
_INFERRED = 3000  # premises with hypotheses to train on
_ALIGNED = 100  # pairs with gold links


class Text(enum.Enum):
  """What the monolingual text of the second language is about."""

  SAME_DOMAIN = 'same_domain'
  OTHER_DOMAIN = 'other_domain'  # nine tenths about the other topic
  WRONG_PAIRS = 'wrong_pairs'  # the same; broken on purpose: no translations
  SAME_PAGES = 'same_pages'  # of real worlds: all languages on one topic


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amounts:
  """How much text there is.

  Attributes:
    sentences: monolingual lines of each language.
    pairs: translation pairs.
    examples: labelled sentences to train taggers on.
    held_out: pairs, and labelled sentences, to test on.
    anchors: share of the content words that both languages spell alike.
    merges: of each language's vocabulary; with enough, a word is one piece.
  """

  sentences: int = 4000
  pairs: int = 2000
  examples: int = 600
  held_out: int = 800
  anchors: float = 0.1
  merges: int = 650

  def world(self, work: pathlib.Path, text: Text) -> 'World':
    """The languages in a working directory."""
    return World(work, text, self)

  def read_by(self, chain: Any) -> 'Amounts':
    """What conditions depend on that begin one from the other."""
    del chain
    return self


@dataclasses.dataclass(frozen=True)
class World:
  """A folder of two languages, `en` and `xx`, and what is made of it.

  They differ in script, and in every word but the anchors; their grammar is
  the same, as in K et al. (2020) and Dufter and Schütze (2020). Other worlds
  (`real_worlds`) are of the same kind.

  Attributes:
    work: where everything is written.
    text: domains.
    amounts: sizes.
  """

  work: pathlib.Path
  text: Text
  amounts: Any

  COVERAGE = 1.0  # of characters by vocabularies
  LENGTH = 16  # tokens of a sentence
  TESTED = 200  # translations that are searched for

  @property
  def seconds(self) -> tuple[str, ...]:
    """The languages beside the first."""
    return (SECOND,)

  @property
  def folder(self) -> pathlib.Path:
    return self.work / 'languages' / self.text.value

  @property
  def corpus(self) -> str:
    return str(self.folder / 'corpus')

  def write(self) -> None:
    """Writes the languages, unless they are there."""
    done = self.folder / 'done'
    if done.exists() and generator.read_options(self.folder) == self._options():
      return
    generator.write(self.folder, self._options())
    if self.text is Text.WRONG_PAIRS:
      held_out.misalign(
        self.folder / 'corpus' / 'parallel' / f'{FIRST}-{SECOND}.tsv'
      )
    done.touch()

  def plain(self) -> 'World':
    """The same languages in one domain, whose vocabularies both use."""
    return dataclasses.replace(self, text=Text.SAME_DOMAIN)

  def vocabulary(self, anchors: Anchors | None) -> pathlib.Path:
    """A vocabulary of whole words; None: of the first language alone."""
    self.write()
    path = self.folder / f'vocabulary_{_name(anchors)}'
    if (path / DESCRIPTION_FILE).exists():
      return path
    corpus = corpus_lib.Corpus(self.corpus)
    merges = self.amounts.merges
    if anchors is None:
      corpus = corpus_lib.Corpus(_copy_first(self.folder))
      anchors = Anchors.JOINT
    elif anchors is Anchors.JOINT:
      merges *= 1 + len(self.seconds)
    vocabulary_training.train_vocabulary(
      corpus,
      path,
      anchors=anchors,
      merges=merges,
      model_type='bpe',
      character_coverage=self.COVERAGE,
      num_threads=1,
    )
    return path

  def cache(self, anchors: Anchors | None) -> pathlib.Path:
    """The token cache of all mixtures under a vocabulary."""
    path = self.folder / f'cache_{_name(anchors)}'
    done = path / 'done'
    if not done.exists():
      mixtures = ['corpus.mono.en']
      if anchors is not None:
        mixtures += ['corpus.mono', 'corpus.parallel']
      dictionaries = pathlib.Path(self.corpus) / 'dictionaries'
      if anchors is Anchors.JOINT and dictionaries.exists():
        mixtures.append('corpus.code_switched')
      plan = cache_writer.Plan(
        directory=path,
        mixtures=mixtures,
        vocabulary=Vocabulary.load(self.plain().vocabulary(anchors)),
        open_tasks=functools.partial(CorpusTasks, self.corpus),
      )
      cache_writer.write_cache(plan)
      done.touch()
    return path

  def tagged(self, split: str, *parts: str) -> source_lib.FileDataset:
    """Sentences with parts of speech; some of those to test on."""
    found = sources.labelled(self.folder, 'pos', split, parts=parts)
    if split == 'train':
      return found
    files = {
      part: held_out.cut(pathlib.Path(str(path)), _TESTED)
      for part, path in found.files.items()
    }
    return dataclasses.replace(found, files=files)

  @property
  def aligned(self) -> source_lib.FileDataset:
    """Translations with links, the second side's words in random order.

    In their own order the words of both sides stand at the same positions,
    by which even an untrained model aligns them.
    """
    name = f'{FIRST}-{SECOND}'
    found = sources.labelled(self.folder, 'alignment', 'test')
    text, gold = map(pathlib.Path, found.files[name])
    shuffled = held_out.shuffled(text, gold, _ALIGNED)
    return dataclasses.replace(found, files={name: shuffled})

  @functools.cached_property
  def tagged_tests(self) -> dict[str, list[TaggedSentence]]:
    """The tagged test sentences of each language."""
    return {
      code: [
        one
        for one in self.tagged('test', code).load(code)
        if isinstance(one, TaggedSentence)
      ]
      for code in (FIRST, *self.seconds)
    }

  def inference(self, split: str, code: str) -> source_lib.FileDataset:
    """Premises and hypotheses of a language, written when first asked for.

    They stand in a folder of their own: the same words, no other data.
    """
    folder = self.work / 'languages' / 'inference'
    done = folder / 'done'
    if not done.exists():
      generator.write(folder, self._inference_options())
      done.touch()
    return sources.labelled(folder, 'nli', split, parts=(code,))

  @functools.cached_property
  def tags(self) -> tuple[str, ...]:
    """The parts of speech."""
    return labels_lib.labels_of(self.tagged('train', FIRST))

  def translations(self, second: str) -> list[tuple[str, str]]:
    """Held-out pairs that share no word but punctuation."""
    sides = [
      (self.folder / 'tatoeba' / f'test.{second}-{FIRST}.{code}')
      .read_text(encoding='utf-8')
      .splitlines()
      for code in (FIRST, second)
    ]
    return [
      (first, second)
      for first, second in zip(*sides, strict=True)
      if not any(
        word.isalnum() for word in {*first.split()} & {*second.split()}
      )
    ]

  def probes(self, vocabulary: Vocabulary | None) -> dict[str, float]:
    """What measures of runs are to be read beside."""
    del vocabulary
    return {}

  def shared_words(self, second: str) -> frozenset[str]:
    """The strings that the tagged test sentences of both languages have."""
    words = [
      {word for example in self.tagged_tests[code] for word in example.words}
      for code in (FIRST, second)
    ]
    return frozenset(words[0] & words[1])

  def dictionary(self) -> pathlib.Path:
    """Every content word with its translation, in MUSE's format."""
    return self._dictionary('dictionary', lambda words: words)

  def shuffled_dictionary(self) -> pathlib.Path:
    """The same words, each with a wrong translation."""
    return self._dictionary(
      'shuffled_dictionary', lambda words: [*words[1:], words[0]]
    )

  def _dictionary(self, folder: str, order) -> pathlib.Path:
    path = self.folder / folder / f'{FIRST}-{SECOND}.txt'
    if not path.exists():
      name = f'{FIRST}-{SECOND}'
      pairs = [
        line.split()
        for split in ('train', 'test')
        for line in (self.folder / 'dictionaries' / f'{name}.{split}.txt')
        .read_text(encoding='utf-8')
        .splitlines()
      ]
      second = order([word for _, word in pairs])
      path.parent.mkdir(exist_ok=True)
      path.write_text(
        ''.join(
          f'{first} {word}\n'
          for (first, _), word in zip(pairs, second, strict=True)
        ),
        encoding='utf-8',
      )
    return path

  def _inference_options(self) -> options_lib.SyntheticOptions:
    plain = self._options()
    few = {
      f'{kind}/{split}': _FEW
      for kind in (*options_lib.CORPUS_KINDS, *options_lib.FAMILIES)
      for split in plain.splits(kind)
    }
    few |= {'nli/train': _INFERRED, 'nli/test': _TESTED}
    return dataclasses.replace(
      plain, sizes=few, hard_inference=0.0, domain_shift=0.0
    )

  def _options(self) -> options_lib.SyntheticOptions:
    few = {
      f'{kind}/{split}': _FEW
      for kind in _UNUSED
      for split in options_lib.SPLITS
      if (kind, split) != ('bucc', 'train')
    }
    return options_lib.SyntheticOptions(
      languages=typology.parse_languages(
        (FIRST, SECOND), (f'{SECOND}.script=greek',)
      ),
      sentences=self.amounts.sentences,
      pairs=self.amounts.pairs,
      examples=self.amounts.examples,
      held_out=self.amounts.held_out,
      anchors=self.amounts.anchors,
      domain_shift=0.8 if self.text is Text.OTHER_DOMAIN else 0.0,
      sizes=few,
    )


def _name(anchors: Anchors | None) -> str:
  return 'first_language' if anchors is None else anchors.value


def _copy_first(folder: pathlib.Path) -> str:
  """A corpus of the first language alone."""
  copy = folder / 'first_language'
  target = copy / 'mono' / f'{FIRST}.txt'
  if not target.exists():
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(
      (folder / 'corpus' / 'mono' / f'{FIRST}.txt').read_bytes()
    )
  return str(copy)
