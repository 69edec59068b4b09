"""Environment wrappers by registered name, one concept per file.

A wrapper is a `gym.Wrapper` registered in `ludus.registry.WRAPPERS`; the keys beside `id` in a config are its keyword
arguments, checked against their annotations before anything is made. A wrong value is a ValueError in `__init__`. A
class method `vectorize(venv, **arguments) -> VectorEnv` lets it stay on a native backend.
"""
