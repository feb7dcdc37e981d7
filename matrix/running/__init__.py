"""A run, from request to run folder: the plan, the workers, what they return."""
