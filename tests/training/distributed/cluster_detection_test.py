"""Tests of detecting a job from flags and scheduler variables."""

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.training.distributed import cluster_detection
from xlflax.utils import errors

_SLURM = {  # Slurm variables of task 5 on two nodes with four tasks each.
  'SLURM_JOB_ID': '4097',
  'SLURM_STEP_NODELIST': 'gpu[07-08]',
  'SLURM_NTASKS': '8',
  'SLURM_STEP_NUM_TASKS': '8',
  'SLURM_PROCID': '5',
  'SLURM_LOCALID': '1',
  'SLURM_STEP_NUM_NODES': '2',
  'SLURM_NODEID': '1',
  'SLURM_STEP_TASKS_PER_NODE': '4(x2)',
}
_OPEN_MPI = {
  'OMPI_MCA_orte_hnp_uri': '1531576320.0;tcp://10.96.0.1,10.148.0.1:34911',
  'OMPI_COMM_WORLD_SIZE': '4',
  'OMPI_COMM_WORLD_RANK': '3',
  'OMPI_COMM_WORLD_LOCAL_RANK': '1',
  'OMPI_COMM_WORLD_LOCAL_SIZE': '2',
}


@pytest.fixture
def detect(monkeypatch):
  """`detect_job` with an environment that JAX also reads."""

  def call(environment, **given):
    for name, value in environment.items():
      monkeypatch.setenv(name, value)
    return cluster_detection.detect_job(environment, **given)

  return call


def _parts(job):
  return job.coordinator_address, job.num_processes, job.process_id, job.source


def test_empty_environment_has_no_job():
  assert cluster_detection.detect_job({}) is None


def test_job_is_detected_from_flags():
  job = cluster_detection.detect_job(
    {}, coordinator_address='a:1', num_processes=2, process_id=1
  )
  assert _parts(job) == ('a:1', 2, 1, 'flags')


def test_job_is_detected_from_variables():
  job = cluster_detection.detect_job(
    {
      'XLFLAX_COORDINATOR': 'a:1',
      'XLFLAX_NUM_PROCESSES': '2',
      'XLFLAX_PROCESS_ID': '1',
    }
  )
  assert _parts(job) == ('a:1', 2, 1, 'environment')


def test_flags_override_variables():
  job = cluster_detection.detect_job(
    {
      'XLFLAX_COORDINATOR': 'a:1',
      'XLFLAX_NUM_PROCESSES': '2',
      'XLFLAX_PROCESS_ID': '1',
    },
    process_id=0,
  )
  assert _parts(job) == ('a:1', 2, 0, 'environment')


def test_slurm_job_is_detected(detect):
  assert _parts(detect(_SLURM)) == ('gpu07:61441', 8, 5, 'slurm')


def test_coordinator_flag_overrides_slurm(detect):
  assert _parts(detect(_SLURM, coordinator_address='ib07:99')) == (
    'ib07:99',
    8,
    5,
    'slurm',
  )


def test_coordinator_variable_overrides_slurm(detect):
  assert detect(
    _SLURM | {'XLFLAX_COORDINATOR': 'ib07:99'}
  ).coordinator_address == ('ib07:99')


def test_open_mpi_job_is_detected(detect):
  assert _parts(detect(_OPEN_MPI)) == ('10.96.0.1:62624', 4, 3, 'openmpi')


@pytest.mark.parametrize(
  'environment',
  [
    {'SLURM_JOB_ID': '1', 'SLURM_NTASKS': '1', 'SLURM_PROCID': '0'},  # sbatch
    _SLURM | {'SLURM_STEP_NUM_TASKS': '1'},  # srun --pty bash
    {'OMPI_COMM_WORLD_SIZE': '1'},
  ],
)
def test_single_process_under_a_scheduler_has_no_job(environment):
  assert cluster_detection.detect_job(environment) is None


def test_cluster_none_ignores_the_environment():
  assert (
    cluster_detection.detect_job(
      _SLURM | {'XLFLAX_NUM_PROCESSES': '2'},
      cluster=cluster_detection.Cluster.NONE,
    )
    is None
  )


def test_missing_cluster_is_an_error():
  with raises_error(errors.ConfigError, mentions='--cluster=slurm'):
    cluster_detection.detect_job({}, cluster=cluster_detection.Cluster.SLURM)


@pytest.mark.parametrize(
  'environment, settings',
  [
    ({}, dict(coordinator_address='a:1')),
    ({}, dict(num_processes=2, process_id=0)),
    ({'XLFLAX_NUM_PROCESSES': '2'}, {}),
  ],
)
def test_incomplete_job_is_rejected(environment, settings):
  with pytest.raises(errors.ConfigError, match='incomplete'):
    cluster_detection.detect_job(environment, **settings)


def test_non_numeric_variable_is_rejected():
  with raises_error(
    errors.ConfigError, got="'two'", mentions='XLFLAX_NUM_PROCESSES'
  ):
    cluster_detection.detect_job({'XLFLAX_NUM_PROCESSES': 'two'})


@pytest.mark.parametrize('coordinator', ['host', ':80', 'host:x', 'host:0'])
def test_invalid_coordinator_address_is_rejected(coordinator):
  with pytest.raises(errors.ConfigError, match='HOST:PORT'):
    cluster_detection.detect_job(
      {}, coordinator_address=coordinator, num_processes=2, process_id=1
    )


def test_process_id_must_be_less_than_the_number_of_processes():
  with raises_error(
    errors.ConfigError, got=2, mentions=('process_id', 'num_processes', 2)
  ):
    cluster_detection.detect_job(
      {}, coordinator_address='a:1', num_processes=2, process_id=2
    )


@pytest.mark.parametrize(
  'more, expected',
  [
    ({}, None),  # no GPUs
    ({'SLURM_GPUS_ON_NODE': '4'}, (1,)),
    (
      {'SLURM_GPUS_ON_NODE': '8', 'CUDA_VISIBLE_DEVICES': '0,1,2,3,4,5,6,7'},
      (2, 3),
    ),
    ({'SLURM_GPUS_ON_NODE': '4', 'CUDA_VISIBLE_DEVICES': '0'}, None),  # bound
    ({'SLURM_GPUS_ON_NODE': '8', 'SLURM_STEP_TASKS_PER_NODE': '1(x2)'}, None),
  ],
)
def test_slurm_tasks_share_the_gpus_of_a_node(more, expected):
  assert (
    cluster_detection.local_devices(
      _SLURM | more, cluster_detection.Cluster.SLURM
    )
    == expected
  )


def test_mpi_processes_share_the_visible_gpus():
  assert cluster_detection.local_devices(
    _OPEN_MPI | {'CUDA_VISIBLE_DEVICES': '0,1,2,3'},
    cluster_detection.Cluster.OPEN_MPI,
  ) == (2, 3)


def test_indivisible_number_of_gpus_is_rejected():
  with raises_error(errors.ConfigError, mentions=(4, 6, 'GPUs')):
    cluster_detection.local_devices(
      _SLURM | {'SLURM_GPUS_ON_NODE': '6'}, cluster_detection.Cluster.SLURM
    )


@pytest.mark.parametrize('node, tasks', [('0', 2), ('2', 2), ('3', 1)])
def test_number_of_slurm_tasks_on_a_node(node, tasks):
  assert (
    cluster_detection.tasks_on_node(
      {'SLURM_NODEID': node, 'SLURM_STEP_TASKS_PER_NODE': '2(x3),1'}
    )
    == tasks
  )


def test_several_slurm_tasks_without_srun_are_rejected():
  """Without srun, a batch script starts only one of the processes."""
  environment = {'SLURM_JOB_ID': '7', 'SLURM_NTASKS': '4'}
  with raises_error(errors.ConfigError, mentions=(4, 'SLURM_NTASKS', 'srun')):
    cluster_detection.detect_job(environment)
  assert (
    cluster_detection.detect_job(
      environment, cluster=cluster_detection.Cluster.NONE
    )
    is None
  )
  assert (
    cluster_detection.detect_job(environment | {'SLURM_NTASKS': '1'}) is None
  )


_TORCHRUN = {'RANK': '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': 'localhost'}


@pytest.mark.parametrize(
  'environment, variables',
  [
    (_TORCHRUN, ('RANK=1', 'WORLD_SIZE=2')),
    # torchrun as the only task of a Slurm step
    (_SLURM | {'SLURM_STEP_NUM_TASKS': '1'} | _TORCHRUN, ('WORLD_SIZE=2',)),
    ({'PMI_RANK': '0', 'PMI_SIZE': '4'}, ('PMI_RANK=0', 'PMI_SIZE=4')),
  ],
)
def test_variables_of_unsupported_launchers_are_described(
  environment, variables
):
  assert cluster_detection.detect_job(environment) is None
  warning = cluster_detection.describe_unread_variables(environment)
  assert warning is not None
  assert_mentions(warning, *variables, '--num_processes', '--cluster=none')


@pytest.mark.parametrize(
  'environment',
  [
    {},
    {'RANK': '0', 'WORLD_SIZE': '1'},  # a container with one process
    {'WORLD_SIZE': '8'},  # a variable of a shell script
    {'RANK': 'captain', 'WORLD_SIZE': 'large'},
    {'SLURM_JOB_ID': '1', 'SLURM_NTASKS': '4'},  # an interactive shell
    # `srun --mpi=pmi2` with one process for each command
    _SLURM | {'PMI_RANK': '5', 'PMI_SIZE': '8'},
    _OPEN_MPI,
  ],
)
def test_single_processes_and_supported_launchers_have_no_warning(environment):
  assert cluster_detection.describe_unread_variables(environment) is None
