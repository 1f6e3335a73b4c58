"""Recipes: data, training and evaluation. Needs ``pip install 'arcgrad[recipes]'``."""
