"""Instruction counts and rooflines of compiled programs, for kernel authors."""
