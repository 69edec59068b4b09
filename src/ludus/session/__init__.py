"""Training sessions: begin a run or go on with one, in a folder that no other process touches."""
