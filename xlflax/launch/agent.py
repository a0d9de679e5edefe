"""A node's part of a job of several nodes: `xlflax launch agent`.

Schedulers start one for each node; see `agents`.
"""

import argparse
import dataclasses
import os

from xlflax.foundation import flag_tables, ranges
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

  nodes: ranges.Count = 1
  node: ranges.Natural = 0
  lead: str = 'localhost:7000'

  @classmethod
  def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    super().add_arguments(parser)
    count = flag_tables.of(ranges.Count)
    parser.add_argument('--nodes', type=count, default=1, metavar='N')
    parser.add_argument(
      '--node',
      type=flag_tables.of(ranges.Natural),
      default=int(os.environ.get('SLURM_NODEID', 0)),
      metavar='I',
      help="this node's number (default: Slurm's, or 0)",
    )
    parser.add_argument(
      '--lead',
      default='localhost:7000',
      metavar='HOST:PORT',
      help='where the agent of node 0 listens (default: %(default)s)',
    )

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
