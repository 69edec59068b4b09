"""Parts of world models, one concept a file: `type:` in the config picks one of each kind.

A world model (`world_model.py`) encodes observations, carries a latent state (`representation/`), and reads predictions
from it (`decoders/`, `heads/`). `planner.py` chooses actions with it.
"""
