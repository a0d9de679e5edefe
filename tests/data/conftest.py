"""Fixtures with a small synthetic corpus in three languages."""

import itertools

import pytest

from xlflax.data.corpus import corpus_directory as corpus
from xlflax.data.corpus import corpus_writer
from xlflax.data.tokenizers import vocabulary_training

_WORDS = {
  'de': (
    'die Katze|der Hund|ein Kind|unser Lehrer|die Nachbarin|jemand|'
    'ein Fischer|die Königin',
    'sieht|hört|findet|malt|sucht|kauft|vergisst|beschreibt',
    'den Fluss|einen Vogel|das Haus|die Brücke|drei Äpfel|einen Brief|'
    'das alte Schiff|die Musik',
    'heute|im Winter|am Abend|wieder|ohne Grund|zum Spaß|im Garten|sehr oft',
  ),
  'en': (
    'the cat|the dog|a child|our teacher|the neighbour|somebody|'
    'a fisherman|the queen',
    'sees|hears|finds|paints|seeks|buys|forgets|describes',
    'the river|a bird|the house|the bridge|three apples|a letter|'
    'the old ship|the music',
    'today|in winter|in the evening|again|without reason|for fun|'
    'in the garden|very often',
  ),
  'ru': (
    'кошка|собака|ребёнок|наш учитель|соседка|кто-то|рыбак|королева',
    'видит|слышит|находит|рисует|ищет|покупает|забывает|описывает',
    'реку|птицу|дом|мост|три яблока|письмо|старый корабль|музыку',
    'сегодня|зимой|вечером|опять|без причины|для забавы|в саду|очень часто',
  ),
}


def sentences(language: str) -> list[str]:
  """Returns 256 different sentences; equal indices are translations."""
  slots = [alternatives.split('|') for alternatives in _WORDS[language]]
  # 4096 sentences; 1061 is coprime to 4096.
  everything = list(itertools.product(*slots))
  return [' '.join(everything[i * 1061 % 4096]) + '.' for i in range(256)]


@pytest.fixture(scope='session')
def toy_sentences() -> dict[str, list[str]]:
  return {language: sentences(language) for language in _WORDS}


@pytest.fixture(scope='session')
def toy_corpus(tmp_path_factory, toy_sentences) -> corpus.Corpus:
  """Corpus with monolingual and parallel text.

  The training split has 60 German, 200 English, 100 Russian lines and 50
  German-English pairs. The other splits are smaller.
  """
  directory = tmp_path_factory.mktemp('toy') / 'corpus'
  for language, size, compression in (
    ('de', 60, 'gz'),
    ('en', 200, ''),
    ('ru', 100, 'zst'),
  ):
    lines = toy_sentences[language][:size]
    documents = [lines[i : i + 5] for i in range(0, size, 5)]
    corpus_writer.write_monolingual(
      directory, language, documents, compression=compression
    )
    corpus_writer.write_monolingual(
      directory,
      language,
      [toy_sentences[language][200:220]],
      split='validation',
    )
  for split, start, stop in (('train', 0, 50), ('test', 220, 240)):
    corpus_writer.write_parallel(
      directory,
      ('de', 'en'),
      list(zip(toy_sentences['de'], toy_sentences['en'], strict=True))[
        start:stop
      ],
      split=split,
    )
  corpus_writer.write_dictionary(
    directory, ('en', 'de'), [('cat', 'Katze'), ('dog', 'Hund', 0.5)]
  )
  return corpus.Corpus(directory)


@pytest.fixture(scope='session')
def toy_vocabulary(tmp_path_factory, toy_corpus):
  return vocabulary_training.train_vocabulary(
    toy_corpus, tmp_path_factory.mktemp('toy') / 'vocabulary', size=180
  )


@pytest.fixture
def registry():
  """Task registry. Tasks and mixtures of a test are removed afterwards."""
  seqio = pytest.importorskip('seqio')
  from xlflax.data.seqio_tasks import task_registry

  registries = (seqio.TaskRegistry, seqio.MixtureRegistry)
  before = [set(registry.names()) for registry in registries]
  yield task_registry
  for registry, names in zip(registries, before, strict=True):
    for name in set(registry.names()) - names:
      registry.remove(name)
