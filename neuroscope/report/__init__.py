"""The report on a pairing's results: six plots and a page that says what the numbers are and what they mean.

Everything is read from results.duckdb and the files beside it; a part that is missing is named. The only owner of
matplotlib.
"""
