"""`xlflax train`: pretraining and fine-tuning."""

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Sequence

from xlflax.commands.flags import compilation, joining
from xlflax.commands.train import closing, phases, train_flags
from xlflax.configuration import config
from xlflax.foundation import screen, stopping
from xlflax.storage import paths
from xlflax.training.devices import machines

HELP = (
  'Trains a model, or continues the run in --model_dir from its last '
  'checkpoint.'
)
RULES = train_flags.RULES
FLAGS = train_flags.FLAGS
FLAG_KINDS = train_flags.FLAG_KINDS


def run(args: argparse.Namespace) -> int:
  """Configures, joins the other processes, and trains or prints the plan."""
  try:
    return _run(args)
  except stopping.Stopped as error:  # before training hears signals
    if not args.stopped_status:
      raise
    print(f'xlflax train: {stopping.describe(error)}.', file=sys.stderr)
    return args.stopped_status


def _run(args: argparse.Namespace) -> int:
  machine = _machine(args)
  each = phases.configure(args)
  _use(args, machine)
  from xlflax.training.processes import distributed

  with distributed.leaving_together(
    'train', stopped_status=args.stopped_status
  ):
    joining.join(args, *(phase.configuration for phase in each))
    trainers = [_trainer(one.args, one.configuration) for one in each]
    if args.dry_run:
      return _plan(args, each, trainers, machine)
    return _train(args, each, trainers)


def _machine(args: argparse.Namespace) -> machines.Machine | None:
  """What --devices or --num_devices describes."""
  if args.devices is None and args.num_devices is None:
    return None
  return machines.parse(args.devices or f'cpu:{args.num_devices}')


def _use(args: argparse.Namespace, machine: machines.Machine | None) -> None:
  """Has a described machine stand in, or uses the cache of programs."""
  if machine:
    from xlflax.planning import stand_in

    stand_in.create_cpu_devices(machine)  # nothing has made devices yet
  else:  # a plan does not look into compiled programs of a cache
    compilation.use(args.compilation_cache)


def _plan(args, each: Sequence[phases.Phase], trainers, machine) -> int:
  """Prints the plan of each run, and of all together."""
  from xlflax.planning import plan as plan_lib
  from xlflax.planning import report
  from xlflax.training.processes import distributed

  by, plans = plan_lib.By(args.plan_by), {}
  if args.phases:
    phases.check([one.on(machine) if machine else one for one in trainers])
  for phase, trainer in zip(each, trainers, strict=True):
    closing.tell_export(trainer)
    ready = phases.ready_to_plan(trainer) if args.phases else trainer
    plans[phase.name] = ready.plan(machine, by=by)
  if args.phases:
    report.show_phases(plans)
  if args.output and distributed.is_lead():
    result = {'phases': plans} if args.phases else plans['']
    text = json.dumps(result, indent=2) + '\n'
    paths.write_atomically(paths.of(args.output), text)
  return 0


def _train(args, each: Sequence[phases.Phase], trainers) -> int:
  """Trains the runs one after the other, up to one that does not end."""
  from xlflax.training.processes import distributed

  finished = phases.check(trainers) if args.phases else [False]
  for phase, trainer, ended in zip(each, trainers, finished, strict=True):
    if ended:
      continue
    if distributed.is_lead():
      closing.tell_export(trainer)
    line = screen.Line(f'{trainer.model_dir}: starting or saving')
    with contextlib.closing(line):
      result = trainer.train(gin_config=phase.configuration.operative)
    if distributed.is_lead():
      print(json.dumps(result))
      closing.tell_next(trainer, result)
    if result.get('interrupted'):
      return args.stopped_status
    if not result.get('finished'):
      break
  return 0


def _trainer(args: argparse.Namespace, configuration: config.Configuration):
  """The run that the configuration and the flags describe."""
  from xlflax import trainer
  from xlflax.training.checkpointing import run_directory

  names = ('stop_at_step', 'hang_timeout', 'profile_steps', 'log_to')
  values = {name: getattr(args, name) for name in names}
  given = {k: value for k, value in values.items() if value not in (None, [])}
  if args.profile_memory:
    given['profile_memory'] = True
  built = configuration.build(
    trainer.Trainer,
    other_config=run_directory.OtherConfig(args.other_config),
    **given,
    **train_flags.invented_vocabulary(args),
  )
  configuration.warn_of_unread()
  if not args.json:
    return built
  # Programs get the losses of each objective and language, too.
  return dataclasses.replace(built, log_to=(*built.log_to, 'terminal'))
