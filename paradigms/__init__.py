"""Ways to think: one file each. Every one is built from the vocabulary of ``agentloop`` alone."""
