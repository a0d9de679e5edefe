"""Training configurations and claims for each replicated paper."""
