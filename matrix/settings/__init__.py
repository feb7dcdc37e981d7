"""What a user declares: the configuration and its environments."""
