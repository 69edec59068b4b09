"""Policies: encoder -> memory -> heads, and the learner that trains them."""
