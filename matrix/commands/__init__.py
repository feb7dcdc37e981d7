"""The command line: what each command takes and which room does the work."""
