"""How far to trust a model and a value function: diagnostics against held-out real episodes."""
