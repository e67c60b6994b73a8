"""What work directories hold, gathered, compared and told: no model, no drawing."""
