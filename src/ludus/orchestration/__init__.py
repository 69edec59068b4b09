"""The loop around an algorithm: phases, evaluation, callbacks. Knows hooks by name only."""
