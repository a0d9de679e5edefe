"""`xlflax publish`: a folder of `convert to-hf` to the Hugging Face Hub."""

import argparse

HELP = (
  'Uploads a folder that `xlflax convert to-hf` wrote to the Hugging Face Hub, '
  'where only its owner sees it; weights and graphs of an earlier upload go.'
)

FLAGS = """
folder FOLDER: that `xlflax convert to-hf` wrote; README.md may be changed
name ORG/NAME: of the model on the Hub
--preview (switch): check the folder, show files and card, send nothing
--public (switch): a model that is new can be seen by everybody
"""


def run(args: argparse.Namespace) -> int:
  """Shows what the folder is, and uploads it."""
  from xlflax.interop.huggingface import hub_files

  what = hub_files.upload(args.folder)
  hub_files.check_name(args.name)
  print(what)
  if args.preview:
    print(f'nothing was sent to {args.name}')
    return 0
  address = hub_files.publish(what, args.name, private=not args.public)
  print(f'published: {address}')
  return 0
