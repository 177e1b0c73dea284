"""Training conversations for any toolset, from phrases that its owner writes in one YAML file."""
