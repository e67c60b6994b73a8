"""Many runs that differ in a few fields: their points, how they are run, and the table of them."""
