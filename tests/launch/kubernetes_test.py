"""Rendered manifests: examples, schema and content."""

import pathlib
import stat

import pytest
import yaml

from tests.errors import assert_mentions, raises_error
from tests.launch import controllers, kubernetes_schema
from xlflax.launch import kubernetes
from xlflax.training.distributed import cluster_detection
from xlflax.utils import errors

_EXAMPLES = pathlib.Path(__file__).parents[2] / 'launch/kubernetes'
_CLAIM = 'claim:runs:/shared'
_ALL_OPTIONS = dict(
  volume=(
    _CLAIM,
    'host:/data:/mnt/data:ro',
    'secret:token:/etc/token',
    'config:settings:/etc/settings',
  ),
  env=('HF_HOME=/shared/hf',),
  secret_env=('WANDB_API_KEY=wandb:key',),
  annotation=('example.com/networks=[{"name": "a"}]',),
  label=('team=nlp',),
  resource=('rdma/hca=8',),
  toleration=('spot', 'pool=large:NoExecute'),
  topology_key='example.com/rack',
  pull_secret=('registry',),
  gpu_network=kubernetes.GpuNetwork.GKE_TCPXO,
  nccl_socket_ifname='eth0',
  host_network=True,
  queue='team',
  node_selector=('example.com/gpu=h200',),
  cpu='32',
  memory='256Gi',
  service_account='trainer',
  fs_group=1000,
  namespace='ml',
  priority_class='high',
  ttl_seconds=86400,
)


def _job(**options):
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
    | options
  )


def _manifests(job):
  return list(yaml.safe_load_all(job.render()))


@pytest.mark.parametrize('nodes', [1, 2, 16])
@pytest.mark.parametrize('manifest', kubernetes.Manifest)
def test_example_manifests(manifest, nodes, regenerate_goldens):
  """Compares the rendered example manifests in launch/kubernetes."""
  path = _EXAMPLES / f'{manifest.value}_{nodes}.yaml'
  job = _job(
    manifest=manifest,
    nnodes=nodes,
    cpu='96',
    memory='960Gi',
    volume=(_CLAIM,),
    fs_group=1000,
    ttl_seconds=7 * 86400,
  )
  _compare(path, job, regenerate_goldens)


def _compare(path, job, regenerate_goldens):
  text = job.render()
  if regenerate_goldens:
    path.write_text(text)
  assert text == path.read_text()
  for manifest in yaml.safe_load_all(text):
    assert not kubernetes_schema.find_problems(manifest)


_CLOUDS = {
  'gke_tcpxo': dict(
    gpu_network=kubernetes.GpuNetwork.GKE_TCPXO,
    node_selector=('cloud.google.com/gke-accelerator=nvidia-h100-mega-80gb',),
  ),
  'eks_efa': dict(
    gpu_network=kubernetes.GpuNetwork.EKS_EFA,
    node_selector=('node.kubernetes.io/instance-type=p5.48xlarge',),
    memory='1500Gi',
  ),
}


@pytest.mark.parametrize('cloud', _CLOUDS)
def test_example_manifests_of_clouds(cloud, regenerate_goldens):
  job = _job(nnodes=2, volume=(_CLAIM,), fs_group=1000, **_CLOUDS[cloud])
  _compare(_EXAMPLES / f'{cloud}_2.yaml', job, regenerate_goldens)


def test_tcpxo_daemon_is_a_sidecar():
  _, pod, container = _parts(_job(nnodes=2, **_CLOUDS['gke_tcpxo']))
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
  for spec in (daemon, container):
    assert {m['name'] for m in spec['volumeMounts']} <= volumes


@pytest.mark.parametrize('manifest', kubernetes.Manifest)
@pytest.mark.parametrize('nodes', [1, 2, 16])
@pytest.mark.parametrize('options', [{}, _ALL_OPTIONS, {'gpus_per_pod': 0}])
def test_manifests_match_the_schema(manifest, nodes, options):
  for rendered in _manifests(_job(manifest=manifest, nnodes=nodes, **options)):
    assert not kubernetes_schema.find_problems(rendered)


@pytest.mark.parametrize('manifest', kubernetes.Manifest)
def test_manifests_match_the_official_schema(manifest):
  """Uses the Kubernetes project's own schema if its package is installed."""
  package = pytest.importorskip('kubernetes_validate')
  for rendered in _manifests(_job(manifest=manifest, **_ALL_OPTIONS)):
    if rendered['kind'] == 'JobSet':
      [workers] = rendered['spec']['replicatedJobs']
      rendered = {
        'apiVersion': 'batch/v1',
        'kind': 'Job',
        'metadata': {'name': 'workers'},
        'spec': workers['template']['spec'],
      }
    package.validate(rendered, '1.30', strict=True)


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
def test_schema_detects_invalid_manifests(path, value, text):
  [_, manifest] = _manifests(_job(manifest=kubernetes.Manifest.JOB))
  parent = manifest
  for name in path[:-1]:
    parent = parent[name]
  parent[path[-1]] = value
  assert any(
    text in problem for problem in kubernetes_schema.find_problems(manifest)
  )


def _template(job):
  return _parts(job)[0]['template']


def _parts(job):
  """Returns the specification of the Job, its pod, and its container."""
  spec = _manifests(job)[-1]['spec']
  if job.manifest is kubernetes.Manifest.JOBSET:
    spec = spec['replicatedJobs'][0]['template']['spec']
  pod = spec['template']['spec']
  return spec, pod, pod['containers'][0]


@pytest.mark.parametrize(
  'manifest, first', [('job', 'mlm-0.mlm'), ('jobset', 'mlm-workers-0-0.mlm')]
)
def test_pods_have_the_coordinator_address(manifest, first):
  spec, pod, container = _parts(_job(manifest=manifest, nnodes=4))
  variables = {v['name']: v.get('value') for v in container['env']}
  assert variables['XLFLAX_COORDINATOR'] == f'{first}:55527'
  assert variables['XLFLAX_NUM_PROCESSES'] == '4'
  assert (spec['completions'], spec['parallelism']) == (4, 4)


def test_tpu_slices_are_replicated_jobs():
  """Each slice is a Job of the JobSet, with indices within the slice."""
  job = _job(
    nnodes=4, num_slices=2, gpu_resource='google.com/tpu', gpus_per_pod=4
  )
  [manifest] = _manifests(job)
  assert not kubernetes_schema.find_problems(manifest)
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
  joined = cluster_detection.detect_job(environment)
  assert (joined.process_id, joined.num_processes) == (1 * 4 + 1, 8)


@pytest.mark.parametrize(
  'options', [{}, {'gpu_resource': 'google.com/tpu', 'manifest': 'job'}]
)
def test_slices_require_tpus_and_a_jobset(options):
  with raises_error(errors.ConfigError, mentions='--num_slices=2'):
    _job(num_slices=2, **options)


def test_service_names_the_pods_of_a_job():
  service, manifest = _manifests(_job(manifest=kubernetes.Manifest.JOB))
  assert service['spec']['clusterIP'] == 'None'
  assert (
    manifest['spec']['template']['spec']['subdomain']
    == (service['metadata']['name'])
  )


def test_pod_failure_policy_of_exit_statuses():
  rules = _parts(_job(manifest=kubernetes.Manifest.JOB))[0]['podFailurePolicy'][
    'rules'
  ]
  assert [
    (r['action'], r.get('onExitCodes', {}).get('values')) for r in rules
  ] == [('FailJob', [2]), ('Ignore', [75, 130]), ('Ignore', None)]


@pytest.mark.parametrize(
  'status, action',
  [
    (errors.ExitStatus.MISTAKE, 'FailJobSet'),
    (errors.ExitStatus.STOPPED, 'RestartJobSetAndIgnoreMaxRestarts'),
    (errors.ExitStatus.INTERRUPTED, 'RestartJobSetAndIgnoreMaxRestarts'),
    (None, 'RestartJobSetAndIgnoreMaxRestarts'),
    (errors.ExitStatus.FAILURE, 'RestartJobSet'),
    (errors.ExitStatus.BUG, 'RestartJobSet'),
    (134, 'RestartJobSet'),  # JAX aborts (SIGABRT) if another process is lost.
    (137, 'RestartJobSet'),  # SIGKILL, or out of memory.
  ],
)
def test_jobset_action_of_exit_statuses(status, action):
  [jobset] = _manifests(_job(manifest=kubernetes.Manifest.JOBSET, nnodes=4))
  model = controllers.Controllers(jobset)
  failure = controllers.end_of_job(model.job, [status])
  assert controllers.action(model.policy, *failure) == action
  assert jobset['spec']['failurePolicy']['maxRestarts'] == 20


@pytest.mark.parametrize(
  'options, platform',
  [
    ({}, '--platform=gpu'),
    ({'gpu_resource': 'google.com/tpu'}, '--platform=tpu'),
    ({'gpus_per_pod': 0}, None),
    (
      {'command': ('train', '--platform=cpu', '--initialization_timeout=60')},
      None,
    ),
  ],
)
def test_launcher_adds_platform_flags(options, platform):
  added = _parts(_job(**options))[2]['command'][
    1 + len(_job(**options).command) :
  ]
  assert added[0] == '--preemption_exit_code=75'
  assert [f for f in added if f.startswith('--platform')] == (
    [platform] if platform else []
  )
  assert ('--initialization_timeout=3600' in added) == (
    'command' not in options
  )


def test_pods_have_resources_volumes_and_secrets():
  spec, pod, container = _parts(_job(**_ALL_OPTIONS))
  assert spec['template']['spec'] is pod
  amounts = {
    'cpu': '32',
    'memory': '256Gi',
    'nvidia.com/gpu': '8',
    'rdma/hca': '8',
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
  assert {'name': 'HF_HOME', 'value': '/shared/hf'} in container['env']
  assert {'name': 'NCCL_SOCKET_IFNAME', 'value': 'eth0'} in container['env']
  assert {
    'name': 'WANDB_API_KEY',
    'valueFrom': {'secretKeyRef': {'name': 'wandb', 'key': 'key'}},
  } in container['env']
  assert pod['serviceAccountName'] == 'trainer'
  assert pod['securityContext'] == {
    'fsGroup': 1000,
    'fsGroupChangePolicy': 'OnRootMismatch',
  }
  assert pod['hostNetwork'] and pod['dnsPolicy'] == 'ClusterFirstWithHostNet'


@pytest.mark.parametrize(
  'image, policy',
  [('xlflax:gpu', 'Always'), ('xlflax@sha256:' + 64 * '0', None)],
)
def test_images_without_digest_are_always_pulled(image, policy):
  assert _parts(_job(image=image))[2].get('imagePullPolicy') == policy


def test_termination_message_falls_back_to_logs():
  container = _parts(_job())[2]
  assert container['terminationMessagePolicy'] == 'FallbackToLogsOnError'


@pytest.mark.parametrize(
  'options, is_guaranteed',
  [
    ({'cpu': '8', 'memory': '64Gi'}, True),
    ({'cpu': '8'}, False),
    ({}, False),
    ({'cpu': '8', 'memory': '64Gi', **_CLOUDS['gke_tcpxo']}, False),
  ],
)
def test_comment_on_eviction_applies_to_guaranteed_pods(options, is_guaranteed):
  """Each container must have equal requests and limits of both resources."""
  _, pod, _ = _parts(_job(**options))
  containers = [*pod['containers'], *pod.get('initContainers', ())]
  amounts = [container.get('resources', {}) for container in containers]
  assert is_guaranteed == all(
    {'cpu', 'memory'} <= {*resources.get('limits', ())}
    and resources['limits'] == resources['requests']
    for resources in amounts
  )
  assert ('evicted last' in _job(**options).render()) == is_guaranteed


@pytest.mark.parametrize('options', [{}, _ALL_OPTIONS, *_CLOUDS.values()])
def test_variables_are_set_once(options):
  env = [v['name'] for v in _parts(_job(**options))[2]['env']]
  assert len(env) == len(set(env))


def test_efa_devices_are_requested():
  limits = _parts(_job(**_CLOUDS['eks_efa']))[2]['resources']['limits']
  assert limits['vpc.amazonaws.com/efa'] == '32'
  assert limits['hugepages-2Mi'] == '5120Mi'


def test_finished_jobs_are_deleted():
  for manifest in kubernetes.Manifest:
    rendered = _manifests(_job(manifest=manifest, ttl_seconds=60))[-1]
    assert rendered['spec']['ttlSecondsAfterFinished'] == 60


def test_pods_share_one_topology_domain():
  jobset = _manifests(_job(topology_key='rack'))[0]
  assert jobset['metadata']['annotations'] == {
    'alpha.jobset.sigs.k8s.io/exclusive-topology': 'rack'
  }
  job = _job(topology_key='rack', manifest=kubernetes.Manifest.JOB)
  [term] = _parts(job)[1]['affinity']['podAffinity'][
    'requiredDuringSchedulingIgnoredDuringExecution'
  ]
  assert term['topologyKey'] == 'rack'


def test_labels_annotations_and_tolerations():
  job = _job(**_ALL_OPTIONS)
  [jobset] = _manifests(job)
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


def test_queue_label_is_only_on_the_job():
  service, manifest = _manifests(
    _job(manifest=kubernetes.Manifest.JOB, queue='team')
  )
  label = 'kueue.x-k8s.io/queue-name'
  assert manifest['metadata']['labels'][label] == 'team'
  assert label not in service['metadata']['labels']
  assert label not in (manifest['spec']['template']['metadata']['labels'])


def test_variable_references_in_the_command_are_escaped():
  command = _parts(_job(command=('train', '--gin.A=$(B)')))[2]['command']
  assert command[:3] == ['xlflax', 'train', '--gin.A=$$(B)']


@pytest.mark.parametrize(
  'options, option',
  [
    ({'name': 'My_Run'}, '--name'),
    ({'name': 'a' * 43}, '--name'),
    ({'env': ('XLFLAX_COORDINATOR=x',)}, '--env'),
    ({'env': ('A=1', 'A=2')}, '--env'),
    ({'env': ('A',)}, '--env'),
    ({'secret_env': ('A=secret',)}, '--secret_env'),
    ({'secret_env': ('A B=secret:key',)}, '--secret_env'),
    ({'node_selector': ('a',)}, '--node_selector'),
    ({'volume': (_CLAIM, _CLAIM)}, '--volume'),
    ({'volume': ('claim:runs',)}, '--volume'),
    ({'volume': ('nfs:runs:/shared',)}, '--volume'),
    ({'volume': ('claim:runs:shared',)}, '--volume'),
    ({'volume': ('claim:runs:/shared:rw',)}, '--volume'),
    ({'toleration': ('=x',)}, '--toleration'),
    ({'toleration': ('a=b:Never',)}, '--toleration'),
    ({'gke_network': ('vpc1',)}, '--gke_network'),
  ],
)
def test_invalid_options_are_rejected(options, option):
  with raises_error(errors.ConfigError, mentions=option):
    _job(**options)


@pytest.mark.parametrize('options', [{'nnodes': 0}, {'manifest': 'pod'}])
def test_values_out_of_range_are_rejected(options):
  with pytest.raises(errors.ConfigError):
    _job(**options)


@pytest.mark.parametrize(
  'model_dir, volume, is_shared',
  [
    ('runs/mlm', (), False),
    ('/runs/mlm', (_CLAIM,), False),
    ('/sharedx/mlm', (_CLAIM,), False),
    ('/shared/../mlm', (_CLAIM,), False),
    ('/etc/a/mlm', ('secret:a:/etc/a',), False),
    ('/shared/runs/mlm', (_CLAIM + ':ro',), False),
    ('/mnt/mlm', ('host:/nfs:/mnt:ro',), False),
    ('/shared/data/mlm', (_CLAIM, 'claim:data:/shared/data:ro'), False),
    ('/shared/token/mlm', (_CLAIM, 'secret:a:/shared/token'), False),
    (
      '/shared/runs/mlm',
      ('claim:data:/shared:ro', 'claim:a:/shared/runs'),
      True,
    ),
    ('/shared/runs/mlm', (_CLAIM,), True),
    ('/mnt/mlm', ('host:/nfs:/mnt',), True),
    ('gs://bucket/mlm', (), True),
    ('s3://bucket/mlm', (), True),
  ],
)
def test_pods_must_share_the_model_directory(model_dir, volume, is_shared):
  job = _job(
    command=('train', '--model_dir', model_dir), nnodes=4, volume=volume
  )
  if is_shared:
    job.check()
    return
  with pytest.raises(errors.ConfigError) as raised:
    job.check()
  assert (raised.value.where, raised.value.got) == ('--model_dir', model_dir)


@pytest.mark.parametrize(
  'command, where',
  [
    (('train', "--gin.MODEL_DIR='runs/mlm'"), '--gin.MODEL_DIR'),
    (('cache', '--output=cache', '--shard_from_env'), '--output'),
    (('vocab', '--sample_dir=a', '--shard_from_env'), '--sample_dir'),
  ],
)
def test_pods_must_share_all_output_directories(command, where):
  with pytest.raises(errors.ConfigError) as raised:
    _job(command=command, nnodes=4, volume=(_CLAIM,)).check()
  assert raised.value.where == where


def test_inputs_outside_of_volumes_cause_a_warning(caplog):
  command = (
    'train',
    '--model_dir=/shared/run',
    '--corpus=/shared/corpus',
    '--cache=cache',
    '--vocabulary=gs://bucket/vocab',
  )
  _job(command=command, volume=(_CLAIM,)).check()
  (record,) = caplog.records
  assert record.args[:2] == ('--cache', 'cache')


@pytest.mark.parametrize(
  'nnodes, volume, warns',
  [
    (2, 'host:/data:/shared', True),
    (1, 'host:/data:/shared', False),
    (2, _CLAIM, False),
  ],
)
def test_host_directory_of_several_nodes_causes_a_warning(
  caplog, nnodes, volume, warns
):
  command = ('train', '--model_dir=/shared/run')
  _job(command=command, nnodes=nnodes, volume=(volume,)).check()
  assert [record.args for record in caplog.records] == (
    [('--model_dir', '/shared/run', '/data')] if warns else []
  )


def test_inputs_on_host_directories_cause_no_warning(caplog):
  command = ('train', '--model_dir=/shared/run', '--corpus=/data/corpus')
  _job(command=command, nnodes=2, volume=(_CLAIM, 'host:/data:/data')).check()
  assert not caplog.records


def test_gin_file_of_this_machine_is_rejected(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'own.gin').write_text('')
  with raises_error(errors.ConfigError, got='own.gin', mentions='--gin_file'):
    _job(command=('train', '--gin_file=own.gin')).check()
  _job(
    command=('train', '--gin_file=own.gin', '--gin_search_paths=/opt/gin')
  ).check()


def test_gin_file_in_a_bucket_is_rejected():
  name = 'gs://bucket/own.gin'
  with raises_error(errors.ConfigError, got=name):
    _job(command=('train', f'--gin_file={name}')).check()


def test_misspelled_gin_file_is_reported():
  job = _job(command=('train', '--gin_file=pretrain/mlmm.gin'))
  with pytest.raises(errors.ConfigError) as raised:
    job.check()
  assert raised.value.got == 'pretrain/mlmm.gin'
  # A file that exists only in the container.
  _job(command=('train', '--gin_file=/opt/own.gin')).check()


def test_user_template_is_rendered(tmp_path):
  """User templates can include the templates of xlflax."""
  template = tmp_path / 'pod.yaml.j2'
  template.write_text(
    'apiVersion: v1\nkind: Pod\nmetadata: {name: {{ job.name | yaml }}}\n'
    '{% filter indent(0) %}\n'
    '{% include "kubernetes/pod_template.yaml.j2" %}\n{% endfilter %}\n'
  )
  [pod] = _manifests(_job(template=template, env=('A=1e3',)))
  assert pod['kind'] == 'Pod'
  assert pod['spec']['containers'][0]['command'][1] == 'train'


@pytest.mark.parametrize('text', ['{{ missing }}', '{% if %}', 'a: [', None])
def test_invalid_templates_are_rejected(tmp_path, text):
  template = tmp_path / 'job.yaml.j2'
  if text is not None:
    template.write_text(text)
  with pytest.raises(errors.ConfigError) as raised:
    _job(template=template).render()
  assert raised.value.where == str(template)


def _kubectl(folder: pathlib.Path, code: str) -> dict[str, str]:
  """Returns an environment with a kubectl that runs shell code."""
  path = folder / 'kubectl'
  path.write_text(f'#!/bin/sh\n{code}\n')
  path.chmod(path.stat().st_mode | stat.S_IXUSR)
  return {'PATH': f'{folder}:/usr/bin:/bin', 'FOLDER': str(folder)}


def test_apply_manifests_passes_the_manifest_to_kubectl(tmp_path):
  job = _job()
  environment = _kubectl(tmp_path, 'echo "$@"; cat > "$FOLDER/applied.yaml"')
  assert kubernetes.apply_manifests(job, environment) == 'apply -f -'
  assert (tmp_path / 'applied.yaml').read_text() == job.render()


def test_kubectl_errors_are_reported(tmp_path):
  with pytest.raises(errors.ConfigError) as raised:
    kubernetes.apply_manifests(
      _job(), _kubectl(tmp_path, 'echo no CRD >&2; exit 1')
    )
  assert raised.value.got == 'no CRD'


@pytest.mark.parametrize('change', ['unchanged', 'configured'])
@pytest.mark.parametrize(
  'manifest, kind, resource',
  [('jobset', 'jobset', 'jobset.jobset.x-k8s.io'), ('job', 'job', 'job.batch')],
)
def test_existing_job_is_reported(tmp_path, manifest, kind, resource, change):
  """kubectl starts nothing if the job exists, even if it has finished."""
  environment = _kubectl(tmp_path, f'echo {resource}/mlm {change}')
  with raises_error(errors.ConfigError, got='mlm') as raised:
    kubernetes.apply_manifests(_job(manifest=manifest), environment)
  assert f'kubectl delete {kind} mlm' in raised.value.fix
  with raises_error(errors.ConfigError) as raised:
    kubernetes.apply_manifests(
      _job(manifest=manifest, namespace='ml'), environment
    )
  assert f'kubectl delete {kind} mlm --namespace=ml' in raised.value.fix


def test_new_job_with_an_existing_service_is_started(tmp_path):
  output = 'service/mlm unchanged\njob.batch/mlm created'
  environment = _kubectl(tmp_path, f'echo "{output}"')
  job = _job(manifest='job')
  assert kubernetes.apply_manifests(job, environment) == output


def test_existing_job_with_another_command_is_reported(tmp_path):
  environment = _kubectl(
    tmp_path, 'echo "spec.template: field is immutable" >&2; exit 1'
  )
  with raises_error(errors.ConfigError, got='mlm') as raised:
    kubernetes.apply_manifests(_job(), environment)
  assert 'kubectl delete jobset mlm' in raised.value.fix


def test_missing_kubectl_is_reported(tmp_path):
  with pytest.raises(errors.ConfigError):
    kubernetes.apply_manifests(_job(), {'PATH': str(tmp_path)})


@pytest.mark.parametrize(
  'options, values',
  [
    ({'memory': '64'}, ['--memory=64Gi']),
    ({'shared_memory': '16'}, ['--shared_memory=16Gi']),
    ({'memory': '64Gi', 'shared_memory': '64M'}, []),
    ({'memory': '68719476736'}, []),
  ],
)
def test_memory_without_a_unit_causes_a_warning(caplog, options, values):
  _job(volume=(_CLAIM,), **options).check()
  assert len(caplog.records) == len(values)
  for record, value in zip(caplog.records, values, strict=True):
    assert_mentions(record.getMessage(), value)
