"""Acting: a policy at work, in numpy or in torch."""
