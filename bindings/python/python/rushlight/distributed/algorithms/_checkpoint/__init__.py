"""Wrappers that checkpoint or offload the activations of a module."""
