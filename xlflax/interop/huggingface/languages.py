"""Languages of multilingual checkpoints, where the files do not tell them.

A language's id matters only to models with language embeddings, which name
their languages; to others it is a label of text. So a long list does no harm,
and a model can be trained and evaluated on any of its languages.
"""

# Those of CC-100 (Conneau et al., 2020, appendix A) and of the 104 largest
# Wikipedias, as BERT's multilingual model was trained on, in ISO 639 codes.
DEFAULT = tuple(
  """
    af am an ar arz as ast az azb ba bar be bg bn bpy br bs ca ce ceb cs cv cy
    da de el en eo es et eu fa fi fr fy ga gd gl gu ha he hi hr ht hu hy id io
    is it ja jv ka kk km kn ko ku ky la lb lmo lo lt lv mg min mk ml mn mr ms
    my nds ne new nl nn no oc om or pa pl pms pnb ps pt ro ru sa scn sd sh si
    sk sl so sq sr su sv sw ta te tg th tl tr tt ug uk ur uz vi vo war xh yi yo
    zh
""".split()
)


def from_options(options: dict) -> tuple[str, ...] | None:
  """The languages that config.json names (XLM's `lang2id`), by id."""
  found = options.get('lang2id')
  if not isinstance(found, dict) or (
    sorted(found.values()) != list(range(len(found)))
  ):
    return None
  return tuple(sorted(found, key=found.__getitem__))
