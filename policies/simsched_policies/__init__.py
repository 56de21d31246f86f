"""The policies that ship with simsched: one policy, one file or folder."""
