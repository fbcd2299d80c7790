"""Reports of Multigrain's studies: one HTML file each, which needs nothing else and no network.

page.py is the shell that all reports share. trace_report.py writes that of `mgtrace report`, with its sections in the
other files trace_*.py; study_report.py that of mgstudy, with its sections in the other files study_*.py.
"""
