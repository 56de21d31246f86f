"""Gavel's policies (Narayanan et al., OSDI'20, sections 4 and 7), each a way to compute shares of time.

They run on `simsched.toolkit.rounds`, with its defaults: rounds of 360 s, new shares at most every 1,920
s. All differ from Gavel's simulator: steps are not rounded down, a round has a fixed length even if its jobs use less
of it (there it ends with the last of their steps), a job that arrives after the last computation of shares leaves its
GPUs to others, and no job gets GPUs of a type on which its rate is 0. A second criterion chooses among several best
solutions (`simsched.toolkit.programs.classes`).
"""
