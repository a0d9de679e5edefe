"""What is measured of a run, always without labels of the second language.

| measure | is | | --- | --- | | `retrieval` | accuracy@1 of translations that
share no word, mean of both directions and of all Transformer layers; each
language's states less their mean | | `retrieval/l` | the same of layer l, 0
being the embeddings | | `plain_retrieval` | without taking the mean off | |
`mapped_retrieval` | after an orthogonal map, learned on other translations | |
`shuffled_retrieval` | `retrieval` of sentences whose tokens stand in random
order | | `partner_gain` | loss of masked tokens beside a wrong translation of
like length, less that beside the right one, in nats: of both sides in a row, or
in VECO's cross-attention | | `cka`, `cka/l` | linear CKA of the translations'
states, mean of all layers | | `offset` | share of the translations' variance
that lies between the means of the two languages, mean of all Transformer layers
| | `norm/SCRIPT` | median norm of the embeddings of a script's pieces;
`first_norm/SCRIPT`: before the first step | | `loss` | of the last ten steps |
| `random_cka` | of the first language's states with a random encoder's | |
`aer/l` | alignment error rate of layer l, by mutual optimal transport, with the
words of the second language in random order; lower is better | | `transfer` | a
tagger trained on the first language: accuracy in the second, of words that the
first does not have | | `source` | its accuracy in the first |
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from studies.replication import probes, running
from studies.replication.conditions import Size
from studies.replication.worlds import FIRST, World
from xlflax.data.dataset_config import LanguageBatching
from xlflax.data.supervised import supervised_dataset
from xlflax.data.supervised.featurizers import tagging_featurizer
from xlflax.data.tokenizers import token_normalization
from xlflax.evaluation import eval_task, hidden_states
from xlflax.evaluation.metrics import retrieval_metrics as retrieval_lib
from xlflax.evaluation.tasks import tagging_task
from xlflax.evaluation.tasks import word_alignment_task as alignment_task
from xlflax.objectives import objective_mixture as mixture_lib
from xlflax.objectives.finetuning import token_classification
from xlflax.similarity import cka, procrustes
from xlflax.similarity.word_links import Method
from xlflax.trainer import Trainer
from xlflax.training.checkpointing import objective_config
from xlflax.training.initialization import vocabulary_matching
from xlflax.training.optimization import optimizers, schedules

_BATCH = 100
_SPECIFIC = 'model/language_specific'


def subject_of(setup, params, objectives=()) -> eval_task.EvalModel:
  """Parameters as evaluation tasks take them."""
  return eval_task.EvalModel(
    model=setup.model,
    params=params,
    vocabulary=setup.vocabulary,
    batch_size=_BATCH,
    objectives={one.name: one for one in objectives},
    inputs=objective_config.collect_inputs(setup.settings),
  )


def sentence_states(
  subject: eval_task.EvalModel,
  world: World,
  second: str,
  code: str,
  *,
  shuffled: bool = False,
):
  """Mean-pooled states of a side of a language's translations, [L + 1, N, H].

  Args:
    subject: the model.
    world: the languages.
    second: the language.
    code: it, or the first language.
    shuffled: each sentence's tokens stand in random order.
  """
  token_ids = probes.side(subject, world, second, code)
  if shuffled:
    draw = np.random.default_rng(0)
    token_ids = [draw.permutation(ids).tolist() for ids in token_ids]
  return hidden_states.token_states(
    subject,
    token_ids,
    [subject.vocabulary.language_id(code)] * len(token_ids),
    max_length=world.LENGTH,
  ).states


def similarity(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
  """Retrieval and CKA of translations' states, [L + 1, N, H] each.

  The last half of the sentences is tested, the first half teaches the map.
  """
  half = first.shape[1] // 2
  tested = first[:, half:], second[:, half:]
  centred = _accuracy(*(_centred(side) for side in tested))
  mapped = [
    _mapped(x[:half], y[:half], x[half:], y[half:])
    for x, y in zip(first, second, strict=True)
  ]
  values = [cka.linear_cka(x, y) for x, y in zip(*tested, strict=True)]
  found = {
    'retrieval': float(centred[1:].mean()),
    'plain_retrieval': float(_accuracy(*tested)[1:].mean()),
    'mapped_retrieval': float(np.mean(mapped[1:])),
    'cka': float(np.mean(values)),
    'offset': float(offset_share(*tested)[1:].mean()),
  }
  for layer, (accuracy, value) in enumerate(zip(centred, values, strict=True)):
    found[f'retrieval/{layer}'] = float(accuracy)
    found[f'mapped_retrieval/{layer}'] = float(mapped[layer])
    found[f'cka/{layer}'] = float(value)
  return found


def _accuracy(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  return retrieval_lib.score_layers(first, second).mean


def offset_share(first: np.ndarray, second: np.ndarray) -> np.ndarray:
  """Share of the variance between two languages' means, of each layer [L].

  0 where the means agree, 1 where states tell nothing but the language.

  Args:
    first: states [L, N, H].
    second: of as many sentences.
  """
  both = np.concatenate([first, second], axis=1)
  gap = first.mean(axis=1) - second.mean(axis=1)
  return (gap**2).sum(-1) / 4 / both.var(axis=1).sum(-1)


def norms(setup, params) -> dict[str, float]:
  """Median norms of the embeddings of each script's pieces."""
  table = params['model'].get('embeddings', {}).get('token')
  if table is None:  # each language has its own
    return {}
  found = np.linalg.norm(np.asarray(table), axis=1)
  forms = token_normalization.plain_tokens(
    vocabulary_matching.comparable_tokens(setup.vocabulary)
  )
  scripts = np.array(
    [token_normalization.script_of_token(one.text) for one in forms]
  )
  return {
    f'norm/{name.lower()}': float(
      np.median(found[: len(scripts)][scripts == name])
    )
    for name in sorted({*scripts} - {'NONE'})
  }


def _mapped(first, second, first_tested, second_tested) -> float:
  """Accuracy of one layer after the map that other sentences give."""
  found = procrustes.fit_alignment(first, second)
  sides = (
    found.map_source(first_tested)[None],
    found.map_target(second_tested)[None],
  )
  return float(_accuracy(*sides)[0])


def _centred(vectors: np.ndarray) -> np.ndarray:
  return vectors - vectors.mean(axis=1, keepdims=True)


def of_model(
  setup, params, world: World, *, against_random: bool = False
) -> dict[str, float]:
  """Retrieval and CKA of a model."""
  subject = subject_of(setup, params)
  start = setup.initial_state().params
  fresh = subject_of(setup, start)
  parts = {}
  for second in world.seconds:
    sides = [
      sentence_states(subject, world, second, code) for code in (FIRST, second)
    ]
    parts[second] = similarity(*sides)
    mixed = [
      sentence_states(subject, world, second, code, shuffled=True)
      for code in (FIRST, second)
    ]
    parts[second]['shuffled_retrieval'] = similarity(*mixed)['retrieval']
    if against_random:
      other = sentence_states(fresh, world, second, second)
      parts[second]['random_cka'] = similarity(sides[0], other)['cka']
  return (
    by_language(parts)
    | norms(setup, params)
    | {f'first_{name}': n for name, n in norms(setup, start).items()}
  )


def by_language(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
  """Means over languages; of several languages also each one's, `name:fr`."""
  names = next(iter(parts.values()))
  found = {
    name: float(np.mean([own[name] for own in parts.values()]))
    for name in names
  }
  if len(parts) > 1:
    found |= {
      f'{name}:{code}': own[name]
      for code, own in parts.items()
      for name in names
      if '/' not in name
    }
  return found


def word_alignment(setup, params, world: World) -> dict[str, float]:
  """Alignment error rate of each layer."""
  task = alignment_task.WordAlignment(
    source=world.aligned, methods=(Method.MUTUAL_TRANSPORT,)
  )
  result = task.evaluate(subject_of(setup, params))
  if result.failures:
    raise RuntimeError(str(result.failures[0]))
  return {
    f'aer/{row["layer"]}': float(row['aer']) for row in result.tables['layers']
  }


def transfer(
  programs: running.Programs, trainer: Trainer, params, world: World, size: Size
) -> dict[str, float]:
  """Trains a tagger on the first language and tests it on both.

  Args:
    programs: compiled programs.
    trainer: the pretraining run.
    params: of its model.
    world: the languages.
    size: of batches.
  """
  labels = world.tags
  tagger = dataclasses.replace(
    trainer,
    model_dir=f'{trainer.model_dir}/tagger',
    datasets=(_tagged_dataset(world, labels, size),),
    objectives=_tagger(labels),
    optimizer=_tagger_optimizer(trainer, size),
    num_train_steps=size.tagger_steps,
    cache_dir=None,
    init_from=None,
  )
  trained = programs.run(tagger, model_params=params)
  return _test(trained, world)


def _tagged_dataset(world: World, labels, size: Size):
  return supervised_dataset.LabeledDatasetConfig(
    name='tagged',
    source=world.tagged('train', FIRST),
    featurizer=tagging_featurizer.TaggingFeaturizer(labels=labels),
    length=world.LENGTH,
    batch_size=32,
    batching=LanguageBatching.ONE_LANGUAGE,
  )


def _tagger(labels) -> mixture_lib.ObjectiveMixture:
  objective = token_classification.TokenClassification(
    labels=labels, head_dropout=0.0
  )
  return mixture_lib.ObjectiveMixture(
    entries=(
      mixture_lib.WeightedObjective(dataset='tagged', objective=objective),
    )
  )


def _tagger_optimizer(trainer: Trainer, size: Size) -> optimizers.Optimizer:
  """ECS freezes the language-specific parts in fine-tuning (section 4.3)."""
  specific = trainer.model.config.sharing is not None
  return optimizers.AdamW(
    learning_rate=schedules.Linear(
      peak_value=size.tagger_rate, warmup_steps=size.tagger_steps // 10
    ),
    frozen=(_SPECIFIC,) if specific else (),
  )


def _test(trained: running.Trained, world: World) -> dict[str, float]:
  """Accuracy in both languages."""
  source = world.tagged('test', FIRST, *world.seconds)
  max_length = trained.setup.model.config.max_position_embeddings
  task = tagging_task.Tagging(source=source, length=max_length)
  subject = subject_of(
    trained.setup,
    trained.state.params,
    trained.setup.settings.objectives.objectives,
  )
  result = task.evaluate(subject)
  if result.failures:
    raise RuntimeError(str(result.failures[0]))
  parts = {}
  for second in world.seconds:
    shared = world.shared_words(second)
    gold = world.tagged_tests[second]
    found = task.EXAMPLE.read_predictions(gold, result.files[f'{second}.tsv'])
    right = [
      tag == own
      for example, tags in zip(gold, found, strict=True)
      for word, own, tag in zip(
        example.words, example.tags or (), tags, strict=True
      )
      if word not in shared
    ]
    parts[second] = {'transfer': float(np.mean(right))}
  return by_language(parts) | {'source': result.metrics[f'accuracy/{FIRST}']}
