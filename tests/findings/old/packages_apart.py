"""A1: two configs whose updates differ have packages of their own."""

from updates import first_update

PAIRS = {
    "order of a MultiDiscrete action": [("Acts23-v0", "ppo"), ("Acts32-v0", "ppo")],
    "order of a MultiDiscrete observation": [("Sees23-v0", "ppo"), ("Sees32-v0", "ppo")],
    "divide_by of ppo": [("Pixels-v0", "ppo", {"type": "small", "divide_by": n}) for n in (10, 255)],
    "divide_by of dqn": [("Pixels-v0", "dqn", {"type": "small", "divide_by": n}) for n in (10, 255)],
}
shared = [what for what, (one, other) in PAIRS.items() if first_update(*one)[0] == first_update(*other)[0]]
assert shared == [], f"these get each other's machine code: {shared}"
