"""The pods of a job under Kubernetes: containers, volumes, resources."""

import re
from typing import Any

from xlflax.launch import kubernetes_settings as settings_lib
from xlflax.launch import pod_patches

PORT = 55527
CONTAINER = 'xlflax'
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_SLICE = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
_SHARED_MEMORY = '/dev/shm'


def template(
  job: settings_lib.KubernetesSettings, *, labels: dict[str, str]
) -> dict[str, Any]:
  """Returns the template of the job's pods, with the user's patches."""
  metadata: dict[str, Any] = {'labels': labels}
  if job.annotations:
    metadata['annotations'] = dict(job.annotations)
  whole = {'metadata': metadata, 'spec': _pod(job)}
  for path in job.patches:
    whole = pod_patches.merged(whole, pod_patches.read(path))
  return whole


def _pod(job: settings_lib.KubernetesSettings) -> dict[str, Any]:
  # The controller of JobSets sets it by itself.
  subdomain = job.name if job.kind is settings_lib.Kind.JOB else None
  return without_none(
    {
      'restartPolicy': 'Never',
      'terminationGracePeriodSeconds': job.grace_seconds,
      'subdomain': subdomain,
      'serviceAccountName': job.service_account,
      'imagePullSecrets': [{'name': s} for s in job.pull_secrets] or None,
      'priorityClassName': job.priority_class,
      'nodeSelector': dict(job.node_selector) or None,
      'tolerations': _tolerations(job) or None,
      'containers': [_container(job)],
      'volumes': [
        _shared_memory(job),
        *(_volume(volume) for volume in job.volumes),
      ],
    }
  )


def _tolerations(job: settings_lib.KubernetesSettings) -> list[dict[str, Any]]:
  own = settings_lib.Toleration(key=job.accelerator, effect='NoSchedule')
  return [
    without_none(
      {
        'key': one.key,
        'operator': 'Exists' if one.value is None else 'Equal',
        'value': one.value,
        'effect': one.effect,
      }
    )
    for one in [*([own] if job.accelerators else []), *job.tolerations]
  ]


def _volume_name(path: str) -> str:
  """'/usr/local/x' -> 'usr-local-x': the name says where it is mounted."""
  return re.sub('[^a-z0-9]+', '-', path.lower()).strip('-')[:63].strip('-')


def _shared_memory(job: settings_lib.KubernetesSettings) -> dict[str, Any]:
  return {
    'name': _volume_name(_SHARED_MEMORY),
    'emptyDir': {'medium': 'Memory', 'sizeLimit': job.shared_memory},
  }


def _volume(volume: settings_lib.Volume) -> dict[str, Any]:
  field, key = {
    settings_lib.Source.CLAIM: ('persistentVolumeClaim', 'claimName'),
    settings_lib.Source.HOST: ('hostPath', 'path'),
    settings_lib.Source.SECRET: ('secret', 'secretName'),
    settings_lib.Source.CONFIG: ('configMap', 'name'),
  }[volume.source]
  return {'name': _volume_name(volume.path), field: {key: volume.name}}


def _mount(volume: settings_lib.Volume) -> dict[str, Any]:
  mount = {'name': _volume_name(volume.path), 'mountPath': volume.path}
  return mount | ({'readOnly': True} if volume.read_only else {})


def _container(job: settings_lib.KubernetesSettings) -> dict[str, Any]:
  command = [_literal(word) for word in job.command]
  return without_none(
    {
      'name': CONTAINER,
      'image': job.image,
      'command': ['xlflax', *command, *job.own_flags],
      'env': _variables(job),
      'ports': [{'name': 'coordinator', 'containerPort': PORT}],
      'resources': _resources(job),
      'volumeMounts': [
        {'name': _volume_name(_SHARED_MEMORY), 'mountPath': _SHARED_MEMORY},
        *(_mount(volume) for volume in job.volumes),
      ],
    }
  )


def _literal(text: str) -> str:
  """A text in which Kubernetes replaces no $(NAME), and no $$ by $."""
  return text.replace('$', '$$')


def _variables(job: settings_lib.KubernetesSettings) -> list[dict[str, Any]]:
  of_set = job.kind is settings_lib.Kind.JOBSET
  first = f'{job.name}-workers-0-0' if of_set else f'{job.name}-0'
  plain = {
    'PYTHONUNBUFFERED': '1',
    'XLFLAX_COORDINATOR': f'{first}.{job.name}:{PORT}',
    'XLFLAX_NUM_PROCESSES': str(job.nodes * job.slices),
  }
  fields = {'XLFLAX_PROCESS_ID': _INDEX}
  if job.slices > 1:
    plain['XLFLAX_NUM_SLICES'] = plain['MEGASCALE_NUM_SLICES'] = str(job.slices)
    plain['MEGASCALE_COORDINATOR_ADDRESS'] = f'{first}.{job.name}'
    fields |= dict.fromkeys(['XLFLAX_SLICE_ID', 'MEGASCALE_SLICE_ID'], _SLICE)
  if not job.accelerators:
    plain['JAX_PLATFORMS'] = 'cpu'
  variables = plain | {**job.env}
  return [
    *({'name': k, 'value': _literal(v)} for k, v in variables.items()),
    *(
      {'name': k, 'valueFrom': {'fieldRef': {'fieldPath': v}}}
      for k, v in fields.items()
    ),
  ]


def _resources(job: settings_lib.KubernetesSettings) -> dict[str, Any] | None:
  """Requests equal to limits: such pods are the last to be evicted."""
  amounts = without_none(
    {
      'cpu': job.cpu,
      'memory': job.memory,
      job.accelerator: str(job.accelerators) if job.accelerators else None,
    }
  ) | dict(job.resources)
  if not amounts:
    return None
  return {'requests': amounts, 'limits': dict(amounts)}


def without_none(values: dict[str, Any]) -> dict[str, Any]:
  """The entries that have a value."""
  return {k: v for k, v in values.items() if v is not None}
