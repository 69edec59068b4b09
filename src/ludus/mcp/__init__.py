"""The verbs of the command line as tools for coding agents, by the Model Context Protocol."""
