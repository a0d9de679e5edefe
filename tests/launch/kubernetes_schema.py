"""Strict schema of the Kubernetes and JobSet API used by the manifests.

Field names and types are those of the API reference of Kubernetes 1.30
(batch/v1
Job, v1 Service) and of JobSet v1alpha2. Unlisted fields are errors, because a
cluster drops or rejects misspelled fields.
"""

import re

_QUANTITY = re.compile(r'\d+(\.\d+)?(m|[kMGTPE]i?)?')
_LABEL = re.compile(r'([A-Za-z0-9][-\w.]*/)?[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?')
_NAME = re.compile(r'[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?')


class _Map:
  """Object with arbitrary keys and values of one type."""

  def __init__(self, values, names=_LABEL):
    self.values, self.names = values, names


class _Required(dict):
  """Object in which all fields are required."""


_LABELS = _Map(str)
_ANNOTATIONS = _Map(str)
_METADATA = {
  'name': _NAME,
  'namespace': _NAME,
  'labels': _LABELS,
  'annotations': _ANNOTATIONS,
}
_EXIT_CODES = _Required(
  containerName=_NAME, operator=('In', 'NotIn'), values=[int]
)
_RULE = {
  'action': ('FailJob', 'Ignore', 'Count', 'FailIndex'),
  'onExitCodes': _EXIT_CODES,
  'onPodConditions': [_Required(type=str, status=('True', 'False'))],
}
_PORT = {'name': _NAME, 'port': int}
_RESOURCES = {'requests': _Map(_QUANTITY), 'limits': _Map(_QUANTITY)}
_CONTAINER = {
  'name': _NAME,
  'image': str,
  'imagePullPolicy': ('Always', 'IfNotPresent', 'Never'),
  'command': [str],
  'args': [str],
  'env': [
    {
      'name': re.compile(r'[A-Z_][A-Z_0-9]*'),
      'value': str,
      'valueFrom': {
        'fieldRef': _Required(fieldPath=str),
        'secretKeyRef': _Required(name=_NAME, key=str),
      },
    }
  ],
  'ports': [{'name': _NAME, 'containerPort': int}],
  'resources': _RESOURCES,
  'securityContext': {'capabilities': {'add': [str]}},
  'terminationMessagePolicy': ('File', 'FallbackToLogsOnError'),
  'startupProbe': {
    'exec': {'command': [str]},
    'initialDelaySeconds': int,
    'periodSeconds': int,
    'failureThreshold': int,
  },
  'volumeMounts': [
    {'name': _NAME, 'mountPath': re.compile('/.*'), 'readOnly': bool}
  ],
}
_VOLUME = {
  'name': _NAME,
  'emptyDir': {'medium': ('', 'Memory'), 'sizeLimit': _QUANTITY},
  'persistentVolumeClaim': _Required(claimName=_NAME),
  'hostPath': _Required(path=re.compile('/.*')),
  'secret': _Required(secretName=_NAME),
  'configMap': _Required(name=_NAME),
}
_POD = {
  'restartPolicy': ('Never',),  # required by a podFailurePolicy
  'terminationGracePeriodSeconds': int,
  'serviceAccountName': _NAME,
  'priorityClassName': _NAME,
  'imagePullSecrets': [_Required(name=_NAME)],
  'nodeSelector': _LABELS,
  'subdomain': _NAME,
  'securityContext': {
    'fsGroup': int,
    'fsGroupChangePolicy': ('Always', 'OnRootMismatch'),
  },
  'hostNetwork': bool,
  'dnsPolicy': ('ClusterFirstWithHostNet',),
  'affinity': {
    'podAffinity': {
      'requiredDuringSchedulingIgnoredDuringExecution': [
        _Required(topologyKey=_LABEL, labelSelector={'matchLabels': _LABELS})
      ]
    }
  },
  'tolerations': [
    {
      'key': _LABEL,
      'operator': ('Exists', 'Equal'),
      'value': str,
      'effect': ('NoSchedule', 'PreferNoSchedule', 'NoExecute'),
    }
  ],
  # A sidecar, since Kubernetes 1.29.
  'initContainers': [_CONTAINER | {'restartPolicy': ('Always',)}],
  'containers': [_CONTAINER],
  'volumes': [_VOLUME],
}
_JOB_SPEC = {
  'ttlSecondsAfterFinished': int,
  'completionMode': ('Indexed', 'NonIndexed'),
  'completions': int,
  'parallelism': int,
  'backoffLimit': int,
  'backoffLimitPerIndex': int,
  'maxFailedIndexes': int,
  'podFailurePolicy': _Required(rules=[_RULE]),
  'template': {
    'metadata': {'labels': _LABELS, 'annotations': _ANNOTATIONS},
    'spec': _POD,
  },
}
_KINDS = {
  ('v1', 'Service'): {
    'clusterIP': ('None',),
    'publishNotReadyAddresses': bool,
    'selector': _LABELS,
    'ports': [_PORT],
  },
  ('batch/v1', 'Job'): _JOB_SPEC,
  ('jobset.x-k8s.io/v1alpha2', 'JobSet'): {
    'ttlSecondsAfterFinished': int,
    'network': {
      'enableDNSHostnames': bool,
      'subdomain': _NAME,
      'publishNotReadyAddresses': bool,
    },
    'failurePolicy': {
      'maxRestarts': int,
      'rules': [
        {
          'name': _NAME,
          'action': (
            'FailJobSet',
            'RestartJobSet',
            'RestartJobSetAndIgnoreMaxRestarts',
          ),
          'onJobFailureReasons': [
            (
              'BackoffLimitExceeded',
              'DeadlineExceeded',
              'FailedIndexes',
              'MaxFailedIndexesExceeded',
              'PodFailurePolicy',
            )
          ],
          'onJobFailureMessagePatterns': [str],  # since JobSet 0.10
        }
      ],
    },
    'replicatedJobs': [
      _Required(name=_NAME, replicas=int, template={'spec': _JOB_SPEC})
    ],
  },
}


def find_problems(manifest) -> list[str]:
  """Returns the find_problems of an object, as 'path: reason'."""
  kind = manifest.get('apiVersion'), manifest.get('kind')
  if kind not in _KINDS:
    return [f'no such kind: {kind}']
  return list(
    _check(
      manifest,
      _Required(
        apiVersion=str, kind=str, metadata=_METADATA, spec=_KINDS[kind]
      ),
      '',
    )
  )


def _check(value, schema, path):
  if isinstance(schema, dict | _Map):
    yield from _check_object(value, schema, path)
  elif isinstance(schema, list):
    if not isinstance(value, list) or not value:
      yield f'{path}: no list with something in it: {value!r}'
      return
    for i, item in enumerate(value):
      yield from _check(item, schema[0], f'{path}[{i}]')
  elif isinstance(schema, tuple):
    if value not in schema:
      yield f'{path}: {value!r} is none of {schema}'
  elif isinstance(schema, re.Pattern):
    if not isinstance(value, str) or not schema.fullmatch(value):
      yield f'{path}: {value!r} does not match {schema.pattern}'
  elif type(value) is not schema:
    yield f'{path}: {value!r} is no {schema.__name__}'


def _check_object(value, schema, path):
  if not isinstance(value, dict):
    yield f'{path}: no object: {value!r}'
    return
  if isinstance(schema, _Required):
    yield from (
      f'{path}.{name}: missing' for name in schema if name not in value
    )
  for name, item in value.items():
    if isinstance(schema, _Map):
      yield from _check(name, schema.names, f'{path} (name)')
      yield from _check(item, schema.values, f'{path}.{name}')
    elif name not in schema:
      yield f'{path}.{name}: unknown field'
    else:
      yield from _check(item, schema[name], f'{path}.{name}')
