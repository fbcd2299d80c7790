"""Reports of Multigrain's studies: one HTML file each, which needs nothing else and no network.

page.py is the shell that all reports share; trace_report.py writes that of `mgtrace report`.
"""
