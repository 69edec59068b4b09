"""Learning: gradients, optimizers, target copies, and compiled updates."""
