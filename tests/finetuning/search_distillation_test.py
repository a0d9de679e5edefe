"""Tests that a student learns a teacher's vectors for translations."""

import numpy as np
import pytest

from xlflax import cli, load_run
from xlflax.evaluation import sentence_embedding

pytest_plugins = ['tests.evaluation.fixtures']


@pytest.mark.slow
def test_student_vectors_approach_those_of_the_teacher(
  make_run, sentences, tmp_path
):
  teacher = make_run(tmp_path / 'teacher', steps=(1,))
  sides = [sentences(code, 24) for code in ('en', 'de')]
  lines = ['\t'.join(pair) for pair in zip(*sides, strict=True)]
  (tmp_path / 'en-de.tsv').write_text('\n'.join(lines) + '\n')
  targets = load_run(str(teacher)).encode(sides[0], languages='en')
  np.save(tmp_path / 'en-de.npy', targets)
  student = tmp_path / 'student'
  files = {'de': str(tmp_path / 'en-de.tsv')}
  vectors = {'de': str(tmp_path / 'en-de.npy')}
  flags = [
    '--gin_file=finetune/search_distillation.gin',
    f'--gin.INIT_FROM="{teacher}"',
    f'--gin.TRAIN_FILES={files}',
    f'--gin.VECTORS={vectors}',
    '--gin.EPOCHS=None',
    '--gin.TRAIN_STEPS=60',
    '--gin.BATCH_SIZE=32',
    '--gin.LENGTH=24',
    '--gin.pretrained.load_model.overrides={"dropout_rate": 0.0}',
    '--gin.LEARNING_RATE=1e-2',
  ]
  assert cli.main(['train', f'--model_dir={student}', *flags]) == 0
  encoding = sentence_embedding.read_sentence_encoding(student)
  assert encoding is not None and not encoding.normalize

  def distance(run):
    vectors = load_run(str(run)).encode(
      sides[1], languages='de', pooling='mean_all'
    )
    return np.square(vectors - targets).mean()

  assert distance(student) < 0.6 * distance(teacher)
