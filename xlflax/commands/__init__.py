"""The sub-commands of the `xlflax` command, one module each."""
