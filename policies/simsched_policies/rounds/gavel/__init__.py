"""Gavel's policies (Narayanan et al., OSDI'20, sections 4 and 7), each a way to compute shares of time.

They run in the frame of `simsched.toolkit.rounds`, with its defaults: rounds of 360 s, new shares at most every 1,920
s. All differ from Gavel's simulator in this: steps are not cut to whole ones, a round lasts its time even if its jobs
use less of it (there, until the last of them has done its steps), a job that came after the last computation of shares
leaves its GPUs to others, and no job is given GPUs of a type on which its rate is 0. A second criterion chooses among
several best solutions (`simsched.toolkit.programs.classes`).
"""
