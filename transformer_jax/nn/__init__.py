"""The parts that models are made of. Mathematics in plain functions; modules only own parameters."""
