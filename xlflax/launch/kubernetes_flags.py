"""Flags of `xlflax launch kubernetes`; each sets the setting of its name."""

from xlflax.launch import kubernetes_settings as settings_lib

FLAGS = f"""
--name (required)
--image (required)
--nodes (Count, default 1): pods, with one process each; of each slice
--slices (Processes, default 1): slices of TPUs, joined over the network
--manifest (one of {' '.join(k.value for k in settings_lib.Kind)}, as kind,
  default jobset): a JobSet, which needs its controller, or a plain indexed Job
--accelerators (Natural, default 8): of each pod
--accelerator RESOURCE (default nvidia.com/gpu)
--cpu: of each pod, such as 32
--memory: of each pod, such as 256Gi
--resource NAME=AMOUNT (Pairs, as resources): of each pod, such as
  vpc.amazonaws.com/efa=32; may be repeated. What a pod requests is its limit
  too
--shared_memory (default 16Gi): size of /dev/shm
--env NAME=VALUE (Pairs): a variable of the container; may be repeated
--annotation NAME=VALUE (Pairs, as annotations): of the pods; may be repeated
--label NAME=VALUE (Pairs, as labels): of all objects and pods; may be repeated
--volume KIND:NAME:DIR[:ro] (Volume, repeated, as volumes): what is mounted at
  DIR: claim:runs:/shared, host:/data:/data:ro, secret:NAME:DIR or
  config:NAME:DIR; may be repeated
--pull_secret NAME (repeated, as pull_secrets): by which the image is fetched;
  may be repeated
--patch FILE (path, repeated, as patches): YAML that is merged into the pods'
  template (metadata, spec), for what has no flag; may be repeated
--node_selector LABEL=VALUE (Pairs): nodes that may be used; may be repeated
--toleration KEY[=VALUE][:EFFECT] (Toleration, repeated, as tolerations): taints
  that the nodes may have, beside the accelerator's; may be repeated
--service_account: the pods' identity, for buckets
--namespace: default: kubectl's own
--queue: LocalQueue of Kueue
--priority_class: of the pods
--restarts (Natural, default 20): how often the job starts again
--grace SECONDS (Natural, as grace_seconds, default 180): for the last
  checkpoint of a pod that has to go
"""
