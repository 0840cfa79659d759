"""The parts of `mnm sweep`: the plan, its trials, the pools that run them, what is shown."""
