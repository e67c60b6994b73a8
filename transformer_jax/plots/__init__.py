"""Plots of runs, and HTML pages. matplotlib is imported only when a plot is drawn."""
