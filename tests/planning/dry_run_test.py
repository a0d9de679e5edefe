"""Tests of the plan of a dry run."""

import dataclasses
import io
import types

import jax
import pytest
import rich.console

from tests.training import tiny, training_setup_test
from xlflax.data import loader_base
from xlflax.planning import dry_run, plan_report
from xlflax.training import param_tree, training_setup
from xlflax.training.optimization import optimizers


@dataclasses.dataclass
class _Loader:
  """Loader of two tasks that records whether it is closed."""

  dataset: object
  closed: bool = False

  def statistics(self):
    more = dict(dropped=3, truncated=7, tokens=None)
    return [
      loader_base.TaskStatistics(
        task='de', languages=('de',), examples=5000, rate=0.75, rows=300, **more
      ),
      loader_base.TaskStatistics(
        task='en', languages=('en',), examples=10, rate=0.25, rows=None, **more
      ),
    ]

  def close(self):
    self.closed = True


@pytest.fixture(scope='module')
def result():
  """The plan of a run of 100 steps of 8 rows with frozen embeddings."""
  settings = training_setup_test.make_settings(
    partitioner=tiny.partitioning.Partitioner(data=4, fsdp=2),
    optimizer=optimizers.AdamW(learning_rate=0.1, frozen=('embeddings',)),
    sdc_check_every=20,
  )
  loader = _Loader(training_setup_test.MONO)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      training_setup.Setup, 'open_loaders', lambda self: {'mono': loader}
    )
    plan = dry_run.make_plan(settings)
  assert loader.closed
  return types.SimpleNamespace(
    made=plan, params=training_setup.Setup(settings).factory.abstract.params
  )


@pytest.mark.slow
def test_dummy_vocabulary_does_not_require_the_initial_run(
  monkeypatch, tmp_path
):
  """The run in `init_from` may be trained later."""
  settings = training_setup_test.make_settings(
    init_from=str(tmp_path / 'missing')
  )
  loader = _Loader(training_setup_test.MONO)
  monkeypatch.setattr(
    training_setup.Setup, 'open_loaders', lambda self: {'mono': loader}
  )
  assert dry_run.make_plan(settings)['total_steps'] == 100


def test_plan_contains_numbers_of_parameters(result):
  sizes = {
    n: leaf.size for n, leaf in param_tree.flatten_params(result.params).items()
  }
  parameters = result.made['parameters']
  assert (
    parameters['total']
    == sum(sizes.values())
    == sum(parameters['modules'].values())
  )
  assert parameters['trainable'] == sum(
    n for name, n in sizes.items() if 'embeddings' not in name
  )
  assert parameters['modules']['model/output_bias'] == 64


def test_plan_contains_memory_per_device(result):
  """With fsdp = 2, each device stores half of the sharded parameters."""
  memory = result.made['memory']
  total_bytes = sum(leaf.size * 4 for leaf in jax.tree.leaves(result.params))
  assert total_bytes / 2 < memory['parameters'] < total_bytes
  assert (
    0 < memory['optimizer'] < 2 * memory['parameters']
  )  # Some parameters are frozen.
  assert memory['batch'] == 4 * 1 * 12 * 4  # arrays, rows, tokens, bytes
  assert memory['temporary'] > 0
  assert memory['total'] == sum(v for k, v in memory.items() if k != 'total')


def test_plan_contains_the_cost_of_replay(result):
  """Replay requires a copy of the state and repeats one step in 20."""
  memory, replay = result.made['memory'], result.made['replay']
  state = memory['parameters'] + memory['optimizer'] + memory['other_state']
  assert memory['replay'] == replay['memory'] == state + 4
  assert replay['every'] == 20 and replay['share'] == 0.05
  assert result.made['seconds_per_step'] == pytest.approx(
    1.05 * replay['seconds']
  )
  printed = io.StringIO()
  plan_report.print_plan(
    result.made, rich.console.Console(file=printed, width=160)
  )
  assert plan_report.format_mebibytes(state + 4) in printed.getvalue()
  assert '5.00%' in printed.getvalue()
  assert 'memory per device: copy of the state' in printed.getvalue()


def test_plan_contains_epochs_of_datasets(result):
  first, second = result.made['datasets']['mono']
  assert (first['task'], first['batches'], first['epochs']) == (
    'de',
    75.0,
    75 * 8 / 300,
  )
  assert (second['batches'], second['epochs']) == (25.0, None)
  assert first['unseen'] == 0 and second['unseen'] is None
  assert first['tokens_read'] == (
    None if first['tokens'] is None else 2 * first['tokens']
  )


@pytest.mark.parametrize(
  ('counts', 'expected'),
  [
    # A cache, whose examples are counted after preprocessing.
    ({'examples_read': 20, 'rows': 8}, (20, 3, 7)),
    # Labeled data, which have no preprocessors.
    ({'rows': 8}, (400, 3, 7)),
    # No cache: the pairs are counted, or the task is not read.
    ({'examples_read': 410, 'rows': None}, (410, 3, 7)),
    ({'rows': None}, (None, None, None)),
  ],
)
def test_plan_contains_numbers_of_preprocessed_examples(
  result, counts, expected
):
  statistics = loader_base.TaskStatistics(
    task='de',
    languages=('de',),
    examples=400,
    rate=1.0,
    dropped=3,
    truncated=7,
    tokens=None,
    **counts,
  )
  loader = types.SimpleNamespace(
    dataset=training_setup_test.MONO, statistics=lambda: [statistics]
  )
  [task] = rows = dry_run._describe_dataset(loader, total_steps=10)
  names = ('examples_read', 'dropped', 'truncated')
  assert task['examples'] == 400
  assert tuple(task[name] for name in names) == expected
  printed = io.StringIO()
  plan_report.print_plan(
    result.made | {'datasets': {'mono': rows}},
    rich.console.Console(file=printed, width=160),
  )
  (line,) = (x for x in printed.getvalue().splitlines() if ' de ' in x)
  cells = [cell.strip() for cell in line.split('│')[1:-1]]
  assert cells[1:5] == [
    '400',
    *('?' if n is None else str(n) for n in expected),
  ]


def test_plan_contains_measured_time(result):
  plan = result.made
  assert plan['flops_per_step'] > 0 and plan['seconds_per_step'] > 0
  assert 'measured on this machine' in plan['seconds_per_step_basis']
  assert (plan['total_steps'], plan['finished_steps']) == (100, [])
  assert plan['vocabulary'] == {'size': 64, 'languages': ['en', 'de']}
  assert plan['mesh'] == {'data': 4, 'fsdp': 2, 'tensor': 1}
