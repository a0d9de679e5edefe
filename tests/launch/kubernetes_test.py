"""Manifests: the examples as they are, the API's schema, and what they say."""

import pathlib
import stat

import pytest
import yaml

from tests.launch import controllers, kubernetes_schema
from xlflax.foundation import errors
from xlflax.launch import kubernetes, manifests
from xlflax.launch import kubernetes_settings as settings_lib
from xlflax.training.processes import cluster

_EXAMPLES = pathlib.Path(__file__).parents[2] / 'launch/kubernetes'
_CLAIM = settings_lib.Volume.parse('claim:runs:/shared')
_EVERYTHING = dict(
  volumes=[
    _CLAIM,
    settings_lib.Volume.parse('host:/data:/mnt/data:ro'),
    settings_lib.Volume.parse('secret:token:/etc/token'),
    settings_lib.Volume.parse('config:settings:/etc/settings'),
  ],
  env={'FI_PROVIDER': 'efa'},
  annotations={'example.com/networks': '[{"name": "a"}]'},
  labels={'team': 'nlp'},
  resources={'vpc.amazonaws.com/efa': '32', 'hugepages-2Mi': '5120Mi'},
  tolerations=[
    settings_lib.Toleration.parse('spot'),
    settings_lib.Toleration.parse('pool=large:NoExecute'),
  ],
  pull_secrets=['registry'],
  patches=[_EXAMPLES / 'gke_tcpxo.patch.yaml'],
  queue='team',
  node_selector={'example.com/gpu': 'h200'},
  cpu='32',
  memory='256Gi',
  service_account='trainer',
  namespace='ml',
  priority_class='high',
)


def _job(**more):
  return kubernetes.KubernetesJob(
    **{
      'command': (
        'train',
        '--gin_file=pretrain/mlm.gin',
        '--gin_file=models/large.gin',
        '--gin.TRAIN_STEPS=200000',
        '--model_dir=/shared/runs/mlm',
      ),
      'name': 'mlm',
      'image': 'registry.example.com/xlflax:gpu',
    }
    | more
  )


@pytest.mark.parametrize('nodes', [1, 2, 16])
@pytest.mark.parametrize('kind', ['job', 'jobset'])
def test_examples(kind, nodes, regenerate_goldens):
  """They lie in launch/kubernetes, for people to read and apply."""
  path = _EXAMPLES / f'{kind}_{nodes}.yaml'
  _compare(
    path, _job(kind=kind, nodes=nodes, volumes=[_CLAIM]), regenerate_goldens
  )


def _compare(path, job, regenerate_goldens):
  text = job.rendered()
  if regenerate_goldens:
    path.write_text(text)
  assert text == path.read_text()
  for manifest in yaml.safe_load_all(text):
    assert not kubernetes_schema.problems(manifest)


_CLOUDS = {
  'gke_tcpxo': dict(
    node_selector={'cloud.google.com/gke-accelerator': 'nvidia-h100-mega-80gb'},
    patches=[_EXAMPLES / 'gke_tcpxo.patch.yaml'],
  ),
  'eks_efa': dict(
    node_selector={'node.kubernetes.io/instance-type': 'p5.48xlarge'},
    resources={'vpc.amazonaws.com/efa': '32', 'hugepages-2Mi': '5120Mi'},
    memory='1500Gi',
    env={
      'FI_PROVIDER': 'efa',
      'LD_LIBRARY_PATH': '/opt/amazon/efa/lib:/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu:/usr/local/nvidia/lib64',
      'NCCL_TUNER_PLUGIN': '/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-ofi-tuner.so',
      'NCCL_BUFFSIZE': '8388608',
      'NCCL_P2P_NET_CHUNKSIZE': '524288',
    },
  ),
}


@pytest.mark.parametrize('cloud', _CLOUDS)
def test_examples_of_clouds(cloud, regenerate_goldens):
  job = _job(nodes=2, volumes=[_CLAIM], **_CLOUDS[cloud])
  _compare(_EXAMPLES / f'{cloud}_2.yaml', job, regenerate_goldens)


def test_daemon_of_tcpxo_ends_with_the_training():
  _, pod, container = _parts(_job(nodes=2, **_CLOUDS['gke_tcpxo']))
  [daemon] = pod['initContainers']
  assert daemon['restartPolicy'] == 'Always'
  assert (
    'devices.gke.io/container.tcpxo-daemon'
    in _template(_job(**_CLOUDS['gke_tcpxo']))['metadata']['annotations']
  )
  variables = {v['name']: v.get('value') for v in container['env']}
  assert variables['NCCL_FASTRAK_CTRL_DEV'] == 'eth0'
  assert variables['XLFLAX_NUM_PROCESSES'] == '2'
  volumes = {v['name'] for v in pod['volumes']}
  for one in (daemon, container):
    assert {m['name'] for m in one['volumeMounts']} <= volumes


@pytest.mark.parametrize('kind', ['job', 'jobset'])
@pytest.mark.parametrize('nodes', [1, 2, 16])
@pytest.mark.parametrize('more', [{}, _EVERYTHING, {'accelerators': 0}])
def test_schema(kind, nodes, more):
  text = _job(kind=kind, nodes=nodes, **more).rendered()
  for manifest in yaml.safe_load_all(text):
    assert not kubernetes_schema.problems(manifest)


@pytest.mark.parametrize('kind', ['job', 'jobset'])
def test_whole_schema(kind):
  """The Kubernetes project's own, where a package with it is installed."""
  package = pytest.importorskip('kubernetes_validate')
  for manifest in manifests.manifests(_job(kind=kind, **_EVERYTHING)):
    if manifest['kind'] == 'JobSet':
      [workers] = manifest['spec']['replicatedJobs']
      manifest = {
        'apiVersion': 'batch/v1',
        'kind': 'Job',
        'metadata': {'name': 'workers'},
        'spec': workers['template']['spec'],
      }
    package.validate(manifest, '1.30', strict=True)


@pytest.mark.parametrize(
  'path, value, text',
  [
    (('spec', 'paralelism'), 2, '.spec.paralelism: unknown field'),
    (('spec', 'parallelism'), '2', ".spec.parallelism: '2' is no int"),
    (('metadata', 'name'), 'A_b', '.metadata.name'),
    (('kind',), 'Jobb', 'no such kind'),
    (('spec', 'podFailurePolicy'), {}, '.rules: missing'),
    (('spec', 'completionMode'), 'indexed', 'is none of'),
  ],
)
def test_schema_finds_mistakes(path, value, text):
  [_, manifest] = manifests.manifests(_job(kind='job'))
  place = manifest
  for name in path[:-1]:
    place = place[name]
  place[path[-1]] = value
  assert any(
    text in problem for problem in kubernetes_schema.problems(manifest)
  )


def _template(job):
  return _parts(job)[0]['template']


def _parts(job):
  """The Job's specification, its pod's, and its container."""
  manifest = manifests.manifests(job)[-1]['spec']
  if job.kind is settings_lib.Kind.JOBSET:
    manifest = manifest['replicatedJobs'][0]['template']['spec']
  pod = manifest['template']['spec']
  return manifest, pod, pod['containers'][0]


@pytest.mark.parametrize(
  'kind, first', [('job', 'mlm-0.mlm'), ('jobset', 'mlm-workers-0-0.mlm')]
)
def test_processes_find_each_other(kind, first):
  spec, pod, container = _parts(_job(kind=kind, nodes=4))
  variables = {v['name']: v.get('value') for v in container['env']}
  assert variables['XLFLAX_COORDINATOR'] == f'{first}:55527'
  assert variables['XLFLAX_NUM_PROCESSES'] == '4'
  assert (spec['completions'], spec['parallelism']) == (4, 4)


def test_slices_of_tpus():
  """Each is a Job of the set, and a number counts within its slice."""
  job = _job(nodes=4, slices=2, accelerator='google.com/tpu', accelerators=4)
  [manifest] = manifests.manifests(job)
  assert not kubernetes_schema.problems(manifest)
  [workers] = manifest['spec']['replicatedJobs']
  assert workers['replicas'] == 2
  assert manifest['metadata']['annotations'] == {
    'alpha.jobset.sigs.k8s.io/exclusive-topology': (
      'cloud.google.com/gke-nodepool'
    )
  }
  spec, _, container = _parts(job)
  assert spec['completions'] == 4
  variables = {v['name']: v.get('value') for v in container['env']}
  assert variables['XLFLAX_NUM_PROCESSES'] == '8'
  assert variables['MEGASCALE_NUM_SLICES'] == '2'
  assert variables['MEGASCALE_COORDINATOR_ADDRESS'] == 'mlm-workers-0-0.mlm'
  environment = {k: '1' if v is None else v for k, v in variables.items()}
  joined = cluster.detect(environment)
  assert (joined.process_id, joined.num_processes) == (1 * 4 + 1, 8)


@pytest.mark.parametrize(
  'more', [{}, {'accelerator': 'google.com/tpu', 'kind': 'job'}]
)
def test_slices_of_something_else_are_refused(more):
  with pytest.raises(errors.ConfigError, match='Several slices are TPUs'):
    _job(slices=2, **more)


def test_service_names_the_pods_of_a_job():
  service, manifest = manifests.manifests(_job(kind='job'))
  assert service['spec']['clusterIP'] == 'None'
  assert (
    manifest['spec']['template']['spec']['subdomain']
    == (service['metadata']['name'])
  )


def test_a_mistake_is_not_repeated_and_a_stop_does_not_count():
  rules = _parts(_job(kind='job'))[0]['podFailurePolicy']['rules']
  assert [
    (r['action'], r.get('onExitCodes', {}).get('values')) for r in rules
  ] == [('FailJob', [2]), ('Ignore', [75]), ('Ignore', None)]


@pytest.mark.parametrize(
  'status, action',
  [
    (errors.ExitStatus.MISTAKE, 'FailJobSet'),
    (errors.ExitStatus.STOPPED, 'RestartJobSetAndIgnoreMaxRestarts'),
    (None, 'RestartJobSetAndIgnoreMaxRestarts'),
    (errors.ExitStatus.FAILURE, 'RestartJobSet'),
    (errors.ExitStatus.BUG, 'RestartJobSet'),
    (134, 'RestartJobSet'),  # JAX ends what lost a peer by SIGABRT
    (137, 'RestartJobSet'),  # kill -9, or out of memory
  ],
)
def test_what_a_jobset_does_after_each_status(status, action):
  [jobset] = manifests.manifests(_job(kind='jobset', nodes=4))
  model = controllers.Controllers(jobset)
  failure = controllers.end_of_job(model.job, [status])
  assert controllers.action(model.policy, *failure) == action
  assert jobset['spec']['failurePolicy']['maxRestarts'] == 20


@pytest.mark.parametrize(
  'more, platform',
  [
    ({}, '--platform=gpu'),
    ({'accelerator': 'google.com/tpu'}, '--platform=tpu'),
    ({'accelerators': 0}, None),
    ({'command': ('train', '--platform=cpu', '--join_timeout=60')}, None),
  ],
)
def test_flags_that_the_launcher_adds(more, platform):
  added = _parts(_job(**more))[2]['command'][1 + len(_job(**more).command) :]
  assert added[0] == '--stopped_status=75'
  assert [f for f in added if f.startswith('--platform')] == (
    [platform] if platform else []
  )
  assert ('--join_timeout=3600' in added) == ('command' not in more)


def test_what_the_pods_have():
  _, pod, container = _parts(_job(**_EVERYTHING))
  amounts = {
    'cpu': '32',
    'memory': '256Gi',
    'nvidia.com/gpu': '8',
    'vpc.amazonaws.com/efa': '32',
    'hugepages-2Mi': '5120Mi',
  }
  assert container['resources'] == {'requests': amounts, 'limits': amounts}
  mounts = {m['mountPath']: m for m in container['volumeMounts']}
  assert {'/dev/shm', '/shared', '/mnt/data', '/etc/token'} <= set(mounts)
  assert mounts['/mnt/data']['readOnly'] and 'readOnly' not in mounts['/shared']
  volumes = {v['name']: v for v in pod['volumes']}
  assert volumes[mounts['/dev/shm']['name']]['emptyDir'] == {
    'medium': 'Memory',
    'sizeLimit': '16Gi',
  }
  assert volumes[mounts['/mnt/data']['name']]['hostPath'] == {'path': '/data'}
  assert volumes['etc-token']['secret'] == {'secretName': 'token'}
  assert volumes['etc-settings']['configMap'] == {'name': 'settings'}
  assert pod['nodeSelector'] == {'example.com/gpu': 'h200'}
  assert pod['imagePullSecrets'] == [{'name': 'registry'}]
  assert {'name': 'FI_PROVIDER', 'value': 'efa'} in container['env']


def test_labels_annotations_and_tolerations():
  job = _job(**_EVERYTHING)
  [jobset] = manifests.manifests(job)
  metadata = _template(job)['metadata']
  assert jobset['metadata']['labels']['team'] == metadata['labels']['team']
  assert metadata['annotations']['example.com/networks'] == '[{"name": "a"}]'
  assert _parts(job)[1]['tolerations'] == [
    {'key': 'nvidia.com/gpu', 'operator': 'Exists', 'effect': 'NoSchedule'},
    {'key': 'spot', 'operator': 'Exists'},
    {
      'key': 'pool',
      'operator': 'Equal',
      'value': 'large',
      'effect': 'NoExecute',
    },
  ]


def test_queue_is_on_what_kueue_admits():
  service, manifest = manifests.manifests(_job(kind='job', queue='team'))
  label = 'kueue.x-k8s.io/queue-name'
  assert manifest['metadata']['labels'][label] == 'team'
  assert label not in service['metadata']['labels']
  assert label not in (manifest['spec']['template']['metadata']['labels'])


def test_kubernetes_replaces_nothing_in_the_command():
  command = _parts(_job(command=('train', '--gin.A=$(B)')))[2]['command']
  assert command[:3] == ['xlflax', 'train', '--gin.A=$$(B)']


@pytest.mark.parametrize(
  'more, text',
  [
    ({'name': 'My_Run'}, 'Got: My_Run. Expected: at most 42'),
    ({'name': 'a' * 43}, 'at most 42'),
    ({'nodes': 0}, 'nodes is out of range'),
    ({'kind': 'pod'}, "one of 'job', 'jobset'"),
    ({'env': {'XLFLAX_COORDINATOR': 'x'}}, 'The launcher sets this variable'),
    ({'volumes': [_CLAIM, _CLAIM]}, 'one place. Got: /shared'),
  ],
)
def test_mistakes(more, text):
  with pytest.raises(errors.ConfigError, match=text):
    _job(**more)


@pytest.mark.parametrize(
  'parse, text',
  [
    (settings_lib.Volume.parse, 'claim:runs'),
    (settings_lib.Volume.parse, 'nfs:runs:/shared'),
    (settings_lib.Volume.parse, 'claim:runs:shared'),
    (settings_lib.Volume.parse, 'claim:runs:/shared:rw'),
    (settings_lib.Toleration.parse, '=x'),
    (settings_lib.Toleration.parse, 'a=b:Never'),
  ],
)
def test_mistakes_in_flags(parse, text):
  with pytest.raises(errors.ConfigError, match=f'Got: {text}. Expected: K'):
    parse(text)


def _kubectl(folder: pathlib.Path, code: str) -> dict[str, str]:
  """An environment with a kubectl that runs some shell."""
  path = folder / 'kubectl'
  path.write_text(f'#!/bin/sh\n{code}\n')
  path.chmod(path.stat().st_mode | stat.S_IXUSR)
  return {'PATH': f'{folder}:/usr/bin:/bin', 'FOLDER': str(folder)}


def test_submission(tmp_path):
  job = _job()
  environment = _kubectl(tmp_path, 'echo "$@"; cat > "$FOLDER/applied.yaml"')
  assert kubernetes.submit(job, environment) == 'apply -f -'
  assert (tmp_path / 'applied.yaml').read_text() == job.rendered()


def test_refused_submission(tmp_path):
  with pytest.raises(errors.ConfigError, match='refused the job. Got: no CRD'):
    kubernetes.submit(_job(), _kubectl(tmp_path, 'echo no CRD >&2; exit 1'))


def test_no_kubectl(tmp_path):
  with pytest.raises(errors.ConfigError, match='There is no kubectl here'):
    kubernetes.submit(_job(), {'PATH': str(tmp_path)})
