"""Joint model-policy optimisation for model-based reinforcement learning (Mismatched No More)."""

__version__ = "0.1.0"
