"""What work directories hold, gathered and compared: no model, no drawing."""
