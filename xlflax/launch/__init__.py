"""Launchers that start multi-process jobs, locally or on a cluster."""
