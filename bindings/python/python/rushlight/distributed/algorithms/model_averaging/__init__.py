"""Averages of models that are trained separately between synchronisations."""
