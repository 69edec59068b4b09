"""Configuration: files, overrides and aliases in, one frozen `ExperimentConfig` out."""
