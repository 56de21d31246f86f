"""Virtual clusters on a hierarchy of cells, as HiveD runs them: buddy allocation, guaranteed and opportunistic gangs.

Pure state and decisions on GPUs by node and index; clocks and the progress of jobs belong to the policy that uses it.
"""
