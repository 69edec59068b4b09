"""Experience: the collector that makes it, the rollouts and buffers that hold it."""
