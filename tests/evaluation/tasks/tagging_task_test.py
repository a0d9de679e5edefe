"""Tests of tagging with known predictions: scores, files and devices."""

import dataclasses

import pytest
from seqeval.metrics import f1_score
from sklearn.metrics import accuracy_score

from tests.data.labeled_words import WordVocabulary
from tests.errors import assert_mentions
from tests.evaluation import one_hot_model
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation.tasks import tagging_task
from xlflax.objectives.finetuning import token_classification
from xlflax.training.devices import partitioning
from xlflax.utils import errors

_LABELS = ('O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC')
_SAYS = {'Ada': 'B-PER', 'King': 'I-LOC', 'Rom': 'I-LOC', 'Max': 'I-PER'}
_OBJECTIVE = token_classification.TokenClassification(labels=_LABELS)


def _sentence(text, language='en', id='0'):
  """Returns a sentence of `word/TAG` tokens, or of words without tags."""
  tokens, _, tags = zip(*(x.partition('/') for x in text.split()), strict=True)
  return labeled_examples.TaggedSentence(
    id=id, language=language, words=tokens, tags=tags if any(tags) else None
  )


_ENGLISH = (
  _sentence('Ada/B-PER King/I-PER saw/O Rom/B-LOC'),
  _sentence('Max/B-PER sees/O Ada/B-PER', id='1'),
)
# The expected repaired tags: an entity has the type of its last tag.
_REPAIRED = [['B-LOC', 'I-LOC', 'O', 'B-LOC'], ['B-PER', 'O', 'B-PER']]
_RAW = [['B-PER', 'I-LOC', 'O', 'I-LOC'], ['I-PER', 'O', 'B-PER']]


@pytest.fixture(scope='module')
def eval_model():
  vocabulary = WordVocabulary(
    ('Ada', 'King', 'saw', 'Rom', 'Max', 'sees', 'Rome')
  )
  return one_hot_model.make_eval_model(
    _OBJECTIVE,
    one_hot_model.tagger(vocabulary, _LABELS, _SAYS),
    vocabulary,
    batch_size=2,
  )


def _task(*parts, **fields):
  return tagging_task.Tagging(source=one_hot_model.Held(parts=parts), **fields)


def test_entity_scores_equal_seqeval(eval_model):
  result = _task(('en', _ENGLISH), scheme='entities').evaluate(eval_model)
  gold = [list(e.tags) for e in _ENGLISH]
  assert result.metrics['f1/en'] == pytest.approx(f1_score(gold, _REPAIRED))
  assert result.metrics['f1/en'] == pytest.approx(0.75)
  assert result.metrics['precision/en'] == pytest.approx(0.75)
  assert result.metrics['accuracy/en'] == pytest.approx(5 / 7)
  assert result.metrics['majority/en'] == pytest.approx(3 / 7)
  assert result.metrics['f1/mean'] == result.metrics['f1/en']
  assert result.files.keys() == {'en.tsv', 'en.examples'}
  assert result.files['en.tsv'] == (
    'B-LOC\nI-LOC\nO\nB-LOC\n\nB-PER\nO\nB-PER\n'
  )
  rows = {row['type']: row for row in result.tables['types']}
  assert (rows['PER']['gold'], rows['PER']['predicted']) == (3, 2)
  assert rows['LOC']['recall'] == 1.0
  assert not result.failures and not result.notes


def test_layer_of_the_head_is_recorded(eval_model):
  task = _task(('en', _ENGLISH))
  assert task.scored_layers(eval_model) == ()
  num_layers = eval_model.model.config.num_layers
  for layer, expected in ((0, 0), (-1, num_layers)):
    objective = dataclasses.replace(_OBJECTIVE, layer=layer)
    model = dataclasses.replace(
      eval_model, objectives={objective.name: objective}
    )
    assert task.scored_layers(model) == (expected,)


def test_plain_tags_are_not_repaired(eval_model):
  result = _task(('en', _ENGLISH), scheme='tags').evaluate(eval_model)
  flat = [sum(map(list, x), []) for x in ((e.tags for e in _ENGLISH), _RAW)]
  assert result.metrics['accuracy/en'] == pytest.approx(accuracy_score(*flat))
  assert result.files['en.tsv'].splitlines()[1] == 'I-LOC'
  assert 'precision/en' not in result.metrics and 'types' not in result.tables


def test_long_sentences_keep_all_words(eval_model):
  """Rows have two text tokens, and `sees` consists of two tokens."""
  full, split = (
    _task(('en', _ENGLISH), length=length).evaluate(eval_model)
    for length in (None, 4)
  )
  assert split.files == full.files and split.metrics == full.metrics
  assert split.notes[1:] == (
    'en: 2 sentences exceeded the maximum length and were split',
  )


def test_eight_devices_equal_one(eval_model):
  task = _task(('en', _ENGLISH), ('fr', _ENGLISH), scheme='entities')
  sharded = dataclasses.replace(
    eval_model, partitioner=partitioning.Partitioner()
  )
  assert task.evaluate(sharded) == task.evaluate(eval_model)


def test_blind_parts_have_only_predictions(eval_model):
  blind = tuple(dataclasses.replace(e, tags=None) for e in _ENGLISH)
  result = _task(('en', _ENGLISH), ('fr', blind)).evaluate(eval_model)
  assert result.files['fr.tsv'] == result.files['en.tsv']
  assert not [key for key in result.metrics if key.endswith('/fr')]
  assert result.notes == (
    'fr: 2 of 2 examples have no gold labels and are not scored',
  )


def test_failed_parts_do_not_affect_other_parts(eval_model):
  unknown = (_sentence('Rome/B-ORG', language='de', id='7'),)
  broken = errors.CorpusError('A file is cut off', where='fr.conllu:3')
  other = (labeled_examples.ClassifiedText(id='0', language='it', text='x'),)
  task = _task(
    ('de', unknown), ('en', _ENGLISH), ('fr', broken), ('it', other), ('es', ())
  )
  result = task.evaluate(eval_model)
  assert set(result.files) == {'en.tsv', 'en.examples'}
  assert result.metrics['accuracy/mean'] == result.metrics['accuracy/en']
  failures = {f.part: f.message for f in result.failures}
  assert_mentions(failures['de'], "'7'", "'de'", 'Got: B-ORG', 'training')
  assert 'fr.conllu:3' in failures['fr']
  assert_mentions(failures['it'], 'classification', 'it')
  assert_mentions(failures['es'], 'no examples', 'es')
  assert len(failures) == 4


def test_unseen_labels_count_as_wrong(eval_model):
  unknown = (_sentence('Rome/B-ORG saw/O', language='de'),)
  strict = _task(('de', unknown), unseen='error').evaluate(eval_model)
  message = strict.failures[0].message
  assert_mentions(message, "'0'", "'de'", 'Got: B-ORG')
  result = _task(('de', unknown)).evaluate(eval_model)
  assert result.metrics['accuracy/de'] == 0.5
  assert result.notes == (
    'de: labels that were not seen in training count as wrong: B-ORG (1)',
  )


def test_unseen_tags_are_located(eval_model, tmp_path):
  file = tmp_path / 'de.conll'
  file.write_text('saw\tO\nRome\tB-ORG\n\n')
  source = example_source.FileDataset(files={'de': str(file)}, format='conll')
  result = tagging_task.Tagging(source=source).evaluate(eval_model)
  assert any(f'{file}:2' in note for note in result.notes)


def test_run_without_the_head_is_rejected(eval_model):
  for changed, error in (
    (dict(objectives={}), errors.ConfigError),
    (dict(params={'model': {}}), errors.CheckpointError),
  ):
    with pytest.raises(error):
      _task(('en', _ENGLISH)).evaluate(
        dataclasses.replace(eval_model, **changed)
      )


def test_the_labels_of_the_source_determine_the_primary_metric():
  assert _task(('en', _ENGLISH)).primary_metric == 'f1'
  tagged = (_sentence('Ada/PROPN saw/VERB'),)
  assert _task(('en', tagged)).primary_metric == 'accuracy'
  assert _task(('en', _ENGLISH), scheme='tags').primary_metric == 'accuracy'
