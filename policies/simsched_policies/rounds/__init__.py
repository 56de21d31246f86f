"""Policies that divide time in rounds: shares from a program, plans over rounds, auctions."""
