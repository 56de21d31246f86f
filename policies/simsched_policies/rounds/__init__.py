"""Policies that share out time in rounds: shares from a program, plans over rounds, auctions."""
