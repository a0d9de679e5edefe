"""Runs that share programs are the runs of their trainers; all else resumes."""

import concurrent.futures
import dataclasses

import jax
import numpy as np
import pytest

import xlflax
from xlflax.data.stream import Layout, PairOptions, SideOrder
from xlflax.replication import experiments, running, trainers, worlds
from xlflax.replication.conditions import AS_BOTH, Condition, Loss, Size, Taken
from xlflax.training.checkpointing import checkpoints
from xlflax.training.initialization.decoder import DecoderInitialization

pytestmark = pytest.mark.slow

AMOUNTS = worlds.Amounts(
  sentences=60, pairs=40, examples=20, held_out=40, merges=60
)
SIZE = Size(layers=1, hidden=8, batch=16, warmup=2)
FIRST = Condition(name='t/first', title='first', steps=10, saved=True)
SECOND = Condition(
  name='t/second',
  title='second',
  steps=10,
  losses=(Loss.ZERO_QUEUE, Loss.TLM),
  begins_from='t/first',
  taken=Taken.ALL,
)

CROSS = Condition(
  name='t/cross',
  title='cross-attention',
  steps=10,
  losses=(Loss.CA_MLM_PAIRS, Loss.FLOWING_CA_MLM_PAIRS),
  cross_attention=True,
  saved=True,
)
TRANSLATION = Condition(
  name='t/translation',
  title='translation',
  steps=10,
  losses=(Loss.TRANSLATION,),
  begins_from='t/cross',
  decoder_layers=1,
  decoder=DecoderInitialization(),
)
PAIRS_OF_TEXT = Condition(
  name='t/pairs_of_text',
  title='pairs of text',
  steps=10,
  untrained=True,
  entailment_steps=10,
)
PLUGGED_IN = Condition(
  name='t/plugged_in',
  title='pairs of text and their counterparts',
  steps=10,
  untrained=True,
  begins_from='t/cross',
  cross_attention=True,
  entailment_steps=10,
)


@pytest.fixture(scope='module')
def world(tmp_path_factory):
  made = worlds.World(
    tmp_path_factory.mktemp('work'), worlds.Text.SAME_DOMAIN, AMOUNTS
  )
  made.write()
  return made


def test_mlm_of_adjacent_segments_reads_what_ca_mlm_reads():
  read = [
    trainers.stream(loss, CROSS, SIZE)
    for loss in (Loss.ADJACENT_MLM, Loss.CA_MLM)
  ]
  assert read[0] == read[1]
  assert read[0].layout is Layout.ADJACENT


def test_pairs_are_put_together_as_the_condition_says(world):
  one = dataclasses.replace(SECOND, pairs=AS_BOTH)
  streams = trainers.trainer(one, world, SIZE, seed=0).streams
  assert {stream.layout: stream.pairs for stream in streams} == {
    Layout.SIDES: PairOptions(order=SideOrder.RANDOM),
    Layout.PAIRS: AS_BOTH,
  }


def test_as_the_trainer_itself(world):
  programs = running.Programs()
  for seed in (3, 4):  # the second run takes the first one's program
    trainer = trainers.trainer(FIRST, world, SIZE, seed=seed)
    mine = programs.run(trainer).state.params['model']
    directory = str(world.work / f'trainer{seed}')
    dataclasses.replace(
      trainer,
      model_dir=directory,
      checkpoints=checkpoints.CheckpointOptions(asynchronous=False),
    ).train()
    theirs = xlflax.open_run(directory).subject().params['model']
    for one, other in zip(
      jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True
    ):
      np.testing.assert_allclose(one, other, atol=2e-5)


def test_programs_are_made_again_where_maps_are_scarce(world, monkeypatch):
  programs = running.Programs()
  trainer = trainers.trainer(FIRST, world, SIZE, seed=5)
  first = programs.run(trainer).state
  [before] = programs._steps.values()
  monkeypatch.setattr(running.program_memory, 'is_scarce', lambda: True)
  second = programs.run(trainer).state
  [after] = programs._steps.values()
  assert after is not before
  for one, other in zip(*map(jax.tree.leaves, (first, second)), strict=True):
    np.testing.assert_array_equal(one, other)


def test_what_is_finished_is_not_run_again(world):
  plan = experiments.Plan(
    conditions=(FIRST, SECOND), seeds=(0,), amounts=AMOUNTS, size=SIZE
  )
  assert experiments.run(plan, world.work, budget=0.0) == []
  found = experiments.run(plan, world.work)
  assert [one.condition for one in found] == ['t/first', 't/second']
  for one in found:
    assert 0 <= one.measures['transfer'] <= 1
    assert 0 <= one.measures['retrieval'] <= 1
    assert one.measures['loss'] > 0
  again = experiments.run(plan, world.work, budget=0.0)
  assert [one.cpu_seconds for one in again] == [
    pytest.approx(one.cpu_seconds, abs=1e-4) for one in found
  ]


def test_what_another_process_makes_is_left_to_it(world):
  plan = experiments.Plan(
    conditions=(FIRST, SECOND), seeds=(7,), amounts=AMOUNTS, size=SIZE
  )
  other = experiments._Experiment(plan, world.work)
  with other._alone(SECOND.name, 7):
    assert [one.condition for one in experiments.run(plan, world.work)] == [
      't/first'
    ]
  made = experiments.run(plan, world.work)
  assert [one.condition for one in made] == ['t/first', 't/second']


def test_processes_that_share_a_directory_make_each_run_once(
  world, tmp_path, caplog
):
  caplog.set_level('INFO')
  plan = experiments.Plan(
    conditions=(FIRST, dataclasses.replace(FIRST, name='t/other')),
    seeds=(0, 1),
    amounts=AMOUNTS,
    size=SIZE,
  )
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    found = list(pool.map(lambda _: experiments.run(plan, tmp_path), range(2)))
  assert max(map(len, found)) == 4
  made = [one.message for one in caplog.records if 'retrieval' in one.message]
  assert len(made) == len(set(made)) == 4


def test_begins_from_the_saved_run(world):
  """The second run starts at the parameters of the first."""
  programs = running.Programs()
  first = trainers.trainer(FIRST, world, SIZE, seed=9)
  trained = programs.run(first)
  running.save(trained, first.vocabulary)
  second = trainers.trainer(SECOND, world, SIZE, seed=9)
  started = programs.run(second, untrained=True)
  for one, other in zip(
    jax.tree.leaves(trained.state.params['model']),
    jax.tree.leaves(started.state.params['model']),
    strict=True,
  ):
    np.testing.assert_array_equal(one, other)


def test_translation_and_pairs_of_text(world, monkeypatch):
  monkeypatch.setattr(worlds, '_INFERRED', 40)
  plan = experiments.Plan(
    conditions=(CROSS, TRANSLATION, PAIRS_OF_TEXT, PLUGGED_IN),
    seeds=(0,),
    amounts=AMOUNTS,
    size=SIZE,
  )
  found = experiments.run(plan, world.work)
  cross, translated, classified, plugged_in = found
  assert 'transfer' in cross.measures
  assert set(translated.measures) == {'loss', 'bleu'}
  assert set(classified.measures) == {'nli/translated', 'nli/switched'}
  assert set(plugged_in.measures) == {'nli/plug_out', 'nli/plug_in'}
  for one in (translated, classified, plugged_in):
    scores = {k: v for k, v in one.measures.items() if k != 'loss'}
    assert all(0 <= value <= 1 for value in scores.values())


def test_seeds_share_a_program(world):
  """Only the first seed is compiled."""
  programs = running.Programs()
  for seed in (5, 6):
    programs.run(trainers.trainer(FIRST, world, SIZE, seed=seed))
  assert len(programs._steps) == 1
