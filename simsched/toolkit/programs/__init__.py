"""Programs that compute shares of time on GPU types from rates, sizes and weights.

Rounding shares into rounds belongs to `simsched.toolkit.rounds`; where rates come from is the policy's business.
"""
