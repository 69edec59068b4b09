"""Many runs from one spec: a search over settings, several seeds at once, tuning. Trials are ordinary runs.

One coordinator owns a search. What it decided is in `runs/@sweeps/NAME`, what came of it in the run folders, and
nothing else is remembered: at every start the search is rebuilt from both.
"""
