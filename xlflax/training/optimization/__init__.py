"""Optimizers, schedules, and options of the loss-spike guard."""
