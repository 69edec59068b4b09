"""Runs on the Hugging Face Hub: publish one, and bring one back from people whom nobody has to trust."""
