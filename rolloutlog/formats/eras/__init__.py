"""The layouts in which prime-rl and verifiers recorded rollouts, told apart line by line and read."""
