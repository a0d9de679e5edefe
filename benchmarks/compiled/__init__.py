"""Instruction counts and rooflines of compiled programs."""
