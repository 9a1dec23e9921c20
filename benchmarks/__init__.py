"""Benchmarks of eventkit beside bare drivers, other queues, and Spark's own readers and writers.

``python -m benchmarks`` runs everything and rewrites ``benchmarks/RESULTS.md``.  Absolute numbers depend on the
machine; the ratios count, so contestants take turns in the same minute and folder, each in a process of its
own.

`__main__` has the table of groups: each is a function that measures on a kind of `databases`.  `contestants` says
what a work is, `kits`, `bare_*` and `peers_*` do it, `rounds` alternates them in `processes`, and `report` writes the
tables.  `spark` has what the groups of Spark share.
"""
