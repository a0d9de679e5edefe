"""A node's part of a job of several nodes: `xlflax launch agent`.

Schedulers start one for each node; see `agents`.
"""

import dataclasses
import os

from xlflax.foundation import ranges
from xlflax.launch import agents, local, registry

_EXAMPLE = """# on each of two nodes of four GPUs, with --node=0 and --node=1
xlflax launch agent --num_processes=4 --nodes=2 --node=0 --lead=host0:7000 \\
    --restarts=20 -- train --gin_file=... --model_dir=...
"""


@registry.register(
  'agent', help="a node's processes of a larger job", example=_EXAMPLE
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentJob(local.LocalJob):
  """The processes of a node, which end and start again with the others'.

  Attributes:
    num_processes: of each node.
    nodes: of the job.
    node: the number of this one.
    lead: 'host:port' at which the agent of node 0 listens.
  """

  flags = f"""
{local.LocalJob.flags}
--nodes N (Count, default 1)
--node I (Natural, default {os.environ.get('SLURM_NODEID', 0)}): this node's
  number, Slurm's if it gives one
--lead HOST:PORT (default localhost:7000): where the agent of node 0 listens
"""
  nodes: ranges.Count = 1
  node: ranges.Natural = 0
  lead: str = 'localhost:7000'

  @property
  def host(self) -> str:
    """Where the job's first process is: on node 0."""
    return self.lead.rpartition(':')[0]

  def place(self, process_id: int) -> tuple[int, int]:
    """A process's number among those of all nodes, and how many they are."""
    first = self.node * self.num_processes
    return first + process_id, self.nodes * self.num_processes

  def start(self) -> int:
    """Runs the processes to the end of the job, whose status it returns."""
    if self.node:
      return self.run(agents.Follower(self.lead))
    listen = int(self.lead.rpartition(':')[2])
    return self.run(agents.Lead(self.port, listen, self.nodes))
