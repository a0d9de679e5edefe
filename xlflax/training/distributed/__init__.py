"""Support for multi-process jobs.

The modules detect a job, connect its processes, and handle failures and
preemption.
"""
