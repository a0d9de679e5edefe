"""Tests of metrics for model selection and of their table in the guide."""

import pathlib
import re

import pytest

from tests.errors import raises_error
from tests.evaluation import one_hot_model
from xlflax.config import gin_config
from xlflax.evaluation import during_training, selection_metrics
from xlflax.evaluation.tasks import (
  classification_task,
  intents_and_slots,
  mteb_tasks,
  multiple_choice_task,
  parsing_task,
  question_answering_task,
  regression_task,
  reranking_task,
  tagging_task,
)
from xlflax.utils import errors

_GUIDE = pathlib.Path(__file__).parents[2] / 'docs/finetuning.md'
_TASKS = {
  'classification': classification_task.Classification,
  'tagging': tagging_task.Tagging,
  'parsing': parsing_task.Parsing,
  'question_answering': question_answering_task.ExtractiveQA,
  'regression': regression_task.Regression,
  'multiple_choice': multiple_choice_task.MultipleChoice,
  'intents_and_slots': intents_and_slots.IntentsAndSlots,
  'reranking': reranking_task.Reranking,
  'search': mteb_tasks.Ranking,
}


# Macros of the development data, which the name of a task does not depend on.
_DEV_MACROS = {
  'intents_and_slots': (
    "DEV_FILES={'en': 'dev.tsv'}",
    "SLOT_DEV_FILES={'en': 'dev.conll'}",
  ),
  'reranking': ("DEV_FOLDER='dev'",),
  'search': ("DEV_FOLDER='dev'",),
}


def _build_task(gin_file):
  """Builds the task that `xlflax finetune` evaluates during training."""
  macros = _DEV_MACROS.get(gin_file, ("DEV_FILES={'en': 'dev'}",))
  configuration = gin_config.load_gin_files(
    [f'finetune/{gin_file}.gin'], macros, partial=True
  )
  (task,) = configuration.build(during_training.Evaluation).tasks
  return task


@pytest.mark.parametrize('gin_file', _TASKS)
def test_the_guide_lists_the_metrics(gin_file):
  task = _TASKS[gin_file]
  text = _GUIDE.read_text('utf-8')
  (row,) = re.findall(rf'^\| `finetune/{gin_file}.gin` \| (.+) \|$', text, re.M)
  prefix, *names = re.findall('`(.+?)`', row)
  assert prefix == f'{_build_task(gin_file).name}/'
  listed = selection_metrics.metric_names(task)
  assert names == listed


def test_f1_requires_a_positive_class():
  source = one_hot_model.Held(parts=(('en', ()),))
  task = classification_task.Classification(source=source)
  with raises_error(errors.ConfigError, got='classification/f1/en'):
    selection_metrics.check_exists('classification/f1/en', [task], where='w')
  assert 'f1' not in selection_metrics.metric_names(task)
  task = classification_task.Classification(source=source, positive='same')
  selection_metrics.check_exists('classification/f1/en', [task], where='w')
