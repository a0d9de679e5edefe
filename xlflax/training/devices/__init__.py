"""Accelerator specifications, device topologies, meshes and sharding."""
