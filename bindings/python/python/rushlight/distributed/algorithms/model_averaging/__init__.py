"""Averages of models that train apart for a while."""
