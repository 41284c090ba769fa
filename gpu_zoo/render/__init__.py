"""Pictures of environments: one small draw function an environment."""
