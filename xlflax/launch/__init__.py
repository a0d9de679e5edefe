"""Launchers that start jobs of several processes, locally or on a cluster."""
