"""Accelerators, device topologies, meshes, and arrays sharded over them."""
