"""Pure functions of arrays and tensors: returns, losses, action distributions, running moments."""
