"""Tests of collectives between TPU slices."""

from benchmarks.compiled.programs import collectives, execution, hlo, kernels

Collective = collectives.Collective


def _counts(module, *, devices, per_node):
  """Returns the collectives of a program."""
  placement = collectives.Placement(devices, per_node)
  reader = kernels.make_reader('tpu', {})
  run = execution.Execution(module, reader, placement, None).run()
  return run.exchanged, run.unknown_loops


_SLICES = """HloModule made

ENTRY %main (p: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %token = token[] after-all()
  %send = (f32[8,4]{1,0}, u32[], token[]) send(%p, %token), channel_id=1, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",_xla_megascale_transfer_type="ALL_REDUCE"}
  %done = token[] send-done(%send), channel_id=1, is_host_transfer=true
  ROOT %copy = f32[8,4]{1,0} copy(%p)
}
"""  # noqa: E501


def test_transfers_between_tpu_slices_are_collectives():
  """XLA:TPU represents these collectives as host transfers."""
  counts, _ = _counts(hlo.parse_module(_SLICES), devices=8, per_node=4)
  [(collective, number)] = counts.items()
  assert (collective, number) == (
    Collective('all-reduce', 2, 2, 'f32', (8, 4), 128),
    1,
  )
  assert collective.sent_outside == 128 and collective.sent == 128
  assert not _counts(hlo.parse_module(_SLICES), devices=4, per_node=4)[0]
  other = _SLICES.replace('_xla_megascale_transfer_type', 'another')
  assert not _counts(hlo.parse_module(other), devices=8, per_node=4)[0]
