"""Sharding of arrays: the mesh, the rules from logical axes to mesh axes, and placement."""
