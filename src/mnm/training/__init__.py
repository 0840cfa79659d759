"""Training: the door to Gymnasium environments, and the metrics that a run writes."""
