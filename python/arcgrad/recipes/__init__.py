"""What experiments are made of: data, models and evaluation. Needs the extra ``[recipes]``."""
