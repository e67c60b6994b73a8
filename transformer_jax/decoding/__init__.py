"""Search. Every search is a pure function of a Stepper."""
