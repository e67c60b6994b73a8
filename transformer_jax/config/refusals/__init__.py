"""What cannot be, and what means nothing, by section of the manual: each is a UserError."""
