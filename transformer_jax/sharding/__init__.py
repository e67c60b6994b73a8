"""Where arrays lie: the mesh, the rules from logical axes to its axes, and placing."""
