"""The command `simsched`; nothing heavy is imported before a command runs."""
