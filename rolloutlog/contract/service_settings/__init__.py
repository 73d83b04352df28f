"""Settings of services that each process has for itself: nobody compares them, and none changes what is on the log."""
