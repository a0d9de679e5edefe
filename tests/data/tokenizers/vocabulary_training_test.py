"""Tests of vocabulary training."""

import json
import re

import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.corpus import corpus_writer
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.tokenizers import fertility as vocabulary_statistics
from xlflax.data.tokenizers import text_sampling, vocabulary_training
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.data.tokenizers.sentencepiece_vocabulary import (
  SentencePieceVocabulary,
)
from xlflax.data.tokenizers.vocabulary_training import (
  ModelType,
  train_vocabulary,
)
from xlflax.utils import errors


def test_the_same_input_gives_the_same_vocabulary(
  tmp_path, toy_corpus, toy_vocabulary
):
  again = train_vocabulary(toy_corpus, tmp_path / 'v', size=180)
  assert again.model == toy_vocabulary.model
  assert again.hash == toy_vocabulary.hash


def test_description_records_layout_and_settings(toy_vocabulary):
  description = toy_vocabulary.description
  assert description['special_ids'] == {
    'pad': 0,
    'bos': 1,
    'eos': 2,
    'unk': 3,
    'mask': 4,
  }
  assert description['language_symbols'] == {
    '<lang:de>': 5,
    '<lang:en>': 6,
    '<lang:ru>': 7,
  }
  assert description['hash'] == toy_vocabulary.hash
  assert description['training']['alpha'] == 0.7
  # English has 200 lines and 50 sides of pairs.
  assert description['training']['sentences']['en']['available'] == 250


def test_bpe_with_byte_fallback_encodes_every_character(tmp_path, toy_corpus):
  vocabulary = train_vocabulary(
    toy_corpus,
    tmp_path / 'v',
    size=400,
    model_type=ModelType.BPE,
    byte_fallback=True,
  )
  ids = vocabulary.encode('ñ 漢')
  assert vocabulary.spec.unk_id not in ids
  assert any(vocabulary.is_byte(i) for i in ids)
  assert vocabulary.decode(ids) == 'ñ 漢'


def test_additional_languages_get_symbols(tmp_path, toy_corpus):
  vocabulary = train_vocabulary(
    toy_corpus, tmp_path / 'v', size=180, languages=('sw',)
  )
  assert vocabulary.spec.languages == ('de', 'en', 'ru', 'sw')


@pytest.mark.parametrize(
  'languages, got, values',
  [
    (('en', 'de'), 'de, en', ('corpus.mono.de', 'LANGUAGES')),
    (('sw', 'en'), 'en', '--languages'),
    (('sw', 'rus'), 'rus', 'ru'),
    (('sw', 'swh'), 'swh', 'sw'),
  ],
)
def test_invalid_additional_languages_are_rejected(
  tmp_path, toy_corpus, languages, got, values
):
  with raises_error(
    errors.ConfigError, got=got, where=str(toy_corpus), mentions=values
  ):
    train_vocabulary(toy_corpus, tmp_path / 'v', size=180, languages=languages)


def test_directories_that_contain_a_vocabulary_have_a_hint(
  tmp_path, toy_vocabulary
):
  (tmp_path / 'config.json').write_text('{}')
  with raises_error(
    errors.VocabularyError,
    got=tmp_path,
    mentions=('from-hf', tmp_path, 'RUN/vocabulary'),
  ):
    Vocabulary.load(tmp_path)
  vocabulary_training.write_vocabulary(
    toy_vocabulary, toy_vocabulary.describe(), tmp_path / 'vocabulary'
  )
  with raises_error(
    errors.VocabularyError, got=tmp_path, mentions=tmp_path / 'vocabulary'
  ):
    Vocabulary.load(tmp_path)


def test_identical_vocabulary_is_not_rewritten(tmp_path, toy_corpus):
  train_vocabulary(toy_corpus, tmp_path, size=180)
  model = tmp_path / 'sentencepiece.model'
  before = model.stat().st_mtime_ns
  train_vocabulary(toy_corpus, tmp_path, size=180)
  assert model.stat().st_mtime_ns == before


def test_different_vocabulary_is_rejected_with_the_differences(
  tmp_path, toy_corpus
):
  train_vocabulary(toy_corpus, tmp_path, size=180)
  with pytest.raises(errors.VocabularyError) as caught:
    train_vocabulary(toy_corpus, tmp_path, size=160, alpha=0.5)
  message = str(caught.value)
  assert_mentions(message, '0.7', '0.5', 180, 160)
  assert_mentions(message, '--overwrite')
  vocabulary = train_vocabulary(toy_corpus, tmp_path, size=160, overwrite=True)
  assert len(vocabulary) == 160


def test_vocabulary_of_other_text_is_not_overwritten(tmp_path, toy_sentences):
  path = tmp_path / 'corpus' / 'mono' / 'en.txt'
  path.parent.mkdir(parents=True)
  path.write_text('\n'.join(toy_sentences['en'][:100]))
  train_vocabulary(Corpus(tmp_path / 'corpus'), tmp_path, size=50)
  path.write_text('\n'.join(toy_sentences['en'][100:200]))
  with raises_error(
    errors.VocabularyError, mentions=('--output', '--overwrite')
  ):
    train_vocabulary(Corpus(tmp_path / 'corpus'), tmp_path, size=50)


def test_languages_with_held_out_text_get_symbols(tmp_path, toy_sentences):
  """The training text is the same, but the vocabulary differs."""

  def train(**more):
    vocabulary = train_vocabulary(
      Corpus(tmp_path / 'corpus'), tmp_path / 'v', size=50, **more
    )
    return vocabulary.spec.languages

  for name, code in {'mono/en.txt': 'en', 'test/mono/de.txt': 'de'}.items():
    path = tmp_path / 'corpus' / name
    path.parent.mkdir(parents=True)
    path.write_text('\n'.join(toy_sentences[code][:100]))
    if code == 'en':
      assert train() == train() == ('en',)
  with raises_error(errors.VocabularyError, where='v', mentions=('en', 'de')):
    train()
  assert train(overwrite=True) == ('de', 'en')


@pytest.mark.parametrize('size, values', [(5000, (5000,)), (20, (20,))])
def test_invalid_sizes_are_rejected(tmp_path, toy_corpus, size, values):
  with raises_error(errors.VocabularyError, mentions=values):
    train_vocabulary(toy_corpus, tmp_path / 'v', size=size)
  assert not (tmp_path / 'v').exists()


@pytest.mark.parametrize(
  'setting, values',
  [
    ({'alpha': 2.0}, (2.0, 'VocabularyConfig.alpha', 0.5)),
    ({'character_coverage': 0.5}, (0.5, 'VocabularyConfig.character_coverage')),
    ({'normalization': 'nfx'}, ('nmt_nfkc', 'nfx')),
    ({'languages': ('zh-Hans',)}, ('zh-Hans',)),
    ({'max_sentences': 0}, (0, 'VocabularyConfig.max_sentences')),
  ],
)
def test_invalid_settings_are_rejected(tmp_path, toy_corpus, setting, values):
  with raises_error(errors.ConfigError, mentions=values):
    train_vocabulary(toy_corpus, tmp_path, **({'size': 180} | setting))


def test_malformed_lines_raise_through_the_trainer(tmp_path):
  (tmp_path / 'parallel').mkdir()
  (tmp_path / 'parallel' / 'de-en.tsv').write_text('a b\tc d\nbroken\n')
  with raises_error(
    errors.CorpusError, where='de-en.tsv:2', mentions=('broken', 1)
  ):
    train_vocabulary(Corpus(tmp_path), tmp_path / 'v', size=50)


def test_corpus_without_training_text_is_rejected(tmp_path):
  (tmp_path / 'test' / 'mono').mkdir(parents=True)
  (tmp_path / 'test' / 'mono' / 'en.txt').write_text('a\n')
  with raises_error(errors.CorpusError, mentions=('mono/', 'parallel/')):
    train_vocabulary(Corpus(tmp_path), tmp_path / 'v', size=50)


def test_unwritable_output_is_rejected(tmp_path, toy_corpus, toy_vocabulary):
  (tmp_path / 'v').write_text('a file')
  with raises_error(errors.VocabularyError, where='v'):
    vocabulary_training.write_vocabulary(
      toy_vocabulary, toy_vocabulary.description, tmp_path / 'v'
    )


def test_overwriting_deletes_only_models_of_the_old_vocabulary(
  tmp_path, toy_vocabulary
):
  """Files that another field of the description mentions are kept."""
  (tmp_path / 'sentencepiece.old.model').write_bytes(b'old')
  (tmp_path / 'sentencepiece.de.model').write_bytes(b'other')
  description = {
    'model': 'sentencepiece.old.model',
    'corpus': 'in sentencepiece.de.models',
  }
  (tmp_path / 'vocabulary.json').write_text(json.dumps(description))
  vocabulary_training.write_vocabulary(
    toy_vocabulary, toy_vocabulary.description, tmp_path
  )
  assert not (tmp_path / 'sentencepiece.old.model').exists()
  assert (tmp_path / 'sentencepiece.de.model').read_bytes() == b'other'


def test_statistics_use_held_out_text(toy_vocabulary, toy_corpus):
  rows = {
    row['language']: row for row in toy_vocabulary.description['statistics']
  }
  text = list(toy_corpus.monolingual('en', 'validation'))
  ids = [toy_vocabulary.encode(line.text) for line in text]
  num_words = sum(len(line.text.split()) for line in text)
  tokens = sum(map(len, ids))
  assert rows['en']['split'] == 'validation'
  assert rows['en']['sentences'] == 20
  assert rows['en']['tokens'] == tokens
  assert rows['en']['tokens_per_word'] == pytest.approx(tokens / num_words)
  assert rows['en']['unknown_rate'] == 0
  assert json.loads(json.dumps(rows)) == rows


@pytest.mark.parametrize(
  ('normalization', 'changed'), [('nmt_nfkc', 0.5), ('identity', 0)]
)
def test_changed_rate_depends_on_normalization(
  tmp_path, normalization, changed
):
  """Every second sentence has full-width letters or zero-width joiners."""
  corpus = tmp_path / 'corpus'
  (corpus / 'mono').mkdir(parents=True)
  lines = ['می\u200cروم خانه', 'mi ravam', 'Ａ ＢＣ', 'a bc']
  (corpus / 'mono' / 'fa.txt').write_text('\n'.join(lines * 20))
  trained = vocabulary_training.train_vocabulary(
    Corpus(corpus),
    tmp_path / 'vocabulary',
    merges=2,
    model_type='bpe',
    character_coverage=1,
    normalization=normalization,
  )
  (row,) = trained.description['statistics']
  assert row['unknown_rate'] == 0
  assert row['changed_rate'] == changed


def test_unknown_rate_of_training_text(tmp_path, toy_vocabulary):
  (tmp_path / 'mono').mkdir()
  (tmp_path / 'mono' / 'en.txt').write_text('漢\n')
  (row,) = vocabulary_statistics.compute_fertility(
    toy_vocabulary, Corpus(tmp_path)
  )
  ids = toy_vocabulary.encode('漢')
  assert row['unknown_rate'] == ids.count(3) / len(ids) > 0
  assert row['split'] == 'train'


def test_statistics_table_has_a_line_per_language(toy_vocabulary):
  table = vocabulary_statistics.format_table(
    toy_vocabulary.description['statistics']
  ).splitlines()
  assert [line.split()[0] for line in table] == ['language', 'de', 'en', 'ru']


def test_sentinels_follow_the_language_symbols(tmp_path, toy_corpus):
  vocabulary = train_vocabulary(toy_corpus, tmp_path, size=180, sentinels=3)
  spec = vocabulary.spec
  assert spec.sentinel_ids == (8, 9, 10)
  assert [vocabulary.piece(i) for i in spec.sentinel_ids] == [
    '<extra_id_0>',
    '<extra_id_1>',
    '<extra_id_2>',
  ]
  assert spec.language_symbol_ids == (5, 6, 7)
  assert spec.special_ids == tuple(range(11))
  assert not set(vocabulary.encode('<extra_id_0>')) & {8, 9, 10}
  assert vocabulary.decode(
    [*vocabulary.encode('the'), 9, *vocabulary.encode('cat')]
  ) == ('the cat')


def test_joint_vocabulary_has_word_starts(toy_vocabulary):
  spec = toy_vocabulary.spec
  flags = np.unpackbits(
    np.frombuffer(spec.word_starts, np.uint8), bitorder='little'
  )[: spec.size]
  assert flags.tolist() == [
    toy_vocabulary.piece(i).startswith('▁') for i in range(spec.size)
  ]
  assert 0 < flags.sum() < spec.size
  assert (spec.sentinel_ids, spec.language_words) == ((), ())


@pytest.mark.parametrize('anchors', ['joint', 'shared'])
@pytest.mark.parametrize('byte_fallback', [False, True])
def test_number_of_merges_is_exact(
  tmp_path, toy_corpus, anchors, byte_fallback
):
  vocabulary = train_vocabulary(
    toy_corpus,
    tmp_path,
    merges=25,
    model_type='bpe',
    anchors=anchors,
    byte_fallback=byte_fallback,
    sentinels=2,
  )
  for model in vocabulary.files().values():
    pieces = SentencePieceVocabulary(model).pieces()
    text = [
      piece
      for i, piece in enumerate(pieces)
      if i not in vocabulary.spec.special_ids and piece[:3] != '<0x'
    ]
    assert sum(len(piece) > 1 for piece in text) == 25
    assert len(set(pieces) - set(text)) == 10 + 256 * byte_fallback
  assert vocabulary.description['training']['merges'] == 25


@pytest.mark.parametrize(
  'settings, values',
  [
    ({}, ('--size=N', '--num_merges=N')),
    ({'size': 180, 'merges': 20}, (180, 20)),
    ({'merges': 20}, ('unigram',)),
    ({'merges': 0, 'model_type': 'bpe'}, (0, 'VocabularyConfig.merges')),
    ({'size': 180, 'sentinels': -1}, (-1, 'VocabularyConfig.sentinels')),
    ({'size': 180, 'anchors': 'many'}, ('many', 'VocabularyConfig.anchors')),
    ({'size': 180, 'anchors': 'none', 'alpha': 0.7}, ('0.7',)),
    ({'size': 180, 'anchors': 'shared', 'languages': ('sw',)}, ('sw',)),
  ],
)
def test_conflicting_settings_are_rejected(
  tmp_path, toy_corpus, settings, values
):
  with raises_error(errors.ConfigError, mentions=values):
    train_vocabulary(toy_corpus, tmp_path, **settings)


def test_too_many_merges_are_rejected_with_the_maximum(tmp_path, toy_corpus):
  with pytest.raises(errors.VocabularyError) as caught:
    train_vocabulary(
      toy_corpus, tmp_path, merges=10_000, model_type='bpe', anchors='none'
    )
  match = re.search(
    'The number of merges is too large for the training text. It must be at '
    'most ([0-9]+). Got: 10000. Where: the text of de',
    str(caught.value),
  )
  assert 'docs/data.md#train-a-vocabulary' in caught.value.fix
  vocabulary = train_vocabulary(  # The reported maximum is possible.
    Corpus(_write_language_corpus(tmp_path / 'c', toy_corpus, 'de')),
    tmp_path / 'v',
    merges=int(match.group(1)),
    model_type='bpe',
    anchors='none',
  )
  assert list(vocabulary.members) == ['de']


def _write_language_corpus(directory, corpus, language):
  """Writes the training sentences of one language's model as a corpus."""
  lines = list(text_sampling.iterate_sentences(corpus, language))
  corpus_writer.write_monolingual(directory, language, [lines])
  return directory


def test_union_training_is_deterministic(tmp_path, toy_corpus):
  settings = {'size': 60, 'anchors': 'shared'}
  first = train_vocabulary(toy_corpus, tmp_path / '1', **settings)
  again = train_vocabulary(toy_corpus, tmp_path / '2', **settings)
  assert again.hash == first.hash
  assert again.files() == first.files()
  assert again.description == first.description
  path = tmp_path / '1' / 'sentencepiece.en.model'
  before = path.stat().st_mtime_ns
  train_vocabulary(toy_corpus, tmp_path / '1', **settings)
  assert path.stat().st_mtime_ns == before
  with raises_error(errors.VocabularyError, where='1', mentions='shared'):
    train_vocabulary(toy_corpus, tmp_path / '1', size=60, anchors='none')


def test_union_description(tmp_path, toy_corpus):
  vocabulary = train_vocabulary(
    toy_corpus, tmp_path, size=60, anchors='none', max_sentences=80
  )
  description = vocabulary.description
  assert description['anchors'] == 'none'
  assert description['members']['en']['size'] == 60
  assert description['members']['en']['file'] == 'sentencepiece.en.model'
  # All sentences, or 80 of them, without repetition.
  assert {
    code: quota['drawn']
    for code, quota in description['training']['sentences'].items()
  } == {'de': 80, 'en': 80, 'ru': 80}
  rows = {row['language']: row for row in description['statistics']}
  texts = [line.text for line in toy_corpus.monolingual('ru', 'validation')]
  assert rows['ru']['tokens'] == sum(
    len(vocabulary.members['ru'].encode(text)) for text in texts
  )


def test_unknown_model_file_is_not_overwritten(tmp_path, toy_corpus):
  (tmp_path / 'sentencepiece.model').write_bytes(b'mine')
  with raises_error(
    errors.VocabularyError, mentions=('--output', '--overwrite')
  ):
    train_vocabulary(toy_corpus, tmp_path, size=180)
  assert (tmp_path / 'sentencepiece.model').read_bytes() == b'mine'
  train_vocabulary(toy_corpus, tmp_path, size=180, overwrite=True)
  (tmp_path / 'vocabulary.json').unlink()  # the state after a killed call
  assert len(train_vocabulary(toy_corpus, tmp_path, size=180)) == 180


def test_overwriting_removes_models_of_the_old_vocabulary(tmp_path, toy_corpus):
  (tmp_path / 'sentencepiece.bpe.model').write_bytes(b'of another program')
  train_vocabulary(toy_corpus, tmp_path, size=180)
  train_vocabulary(
    toy_corpus, tmp_path, size=60, anchors='none', overwrite=True
  )
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    'sentencepiece.bpe.model',
    'sentencepiece.de.model',
    'sentencepiece.en.model',
    'sentencepiece.ru.model',
    'vocabulary.json',
  ]
  vocabulary = train_vocabulary(toy_corpus, tmp_path, size=180, overwrite=True)
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    'sentencepiece.bpe.model',
    'sentencepiece.model',
    'vocabulary.json',
  ]
  assert len(vocabulary) == 180


def test_path_instead_of_a_corpus_has_a_hint(tmp_path):
  with raises_error(errors.ConfigError, got='folder') as error:
    vocabulary_training.train_vocabulary('folder', tmp_path, size=100)
  assert_mentions(error.value.fix, "xlflax.data.Corpus('folder')")
