"""Search algorithms, each a pure function of a Stepper."""
