"""Virtual clusters on a hierarchy of cells, as in HiveD: buddy allocation, guaranteed and opportunistic gangs.

Pure state and decisions on GPUs by node and index, without clocks or the progress of jobs.
"""
