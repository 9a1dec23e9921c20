"""Benchmarks of eventkit beside bare apsw, other queues, and Spark's own readers and writers.

``python -m benchmarks`` runs everything and rewrites ``benchmarks/RESULTS.md``.  Absolute numbers depend on the
machine; the ratios count, so contestants take turns in the same minute and folder, each in a process of its
own.

`rounds` alternates the contestants; `bare`, `kits` and `peers` are the contestants; `throughput`, `crowd`,
`waking`, `idling`, `sharing`, `locking`, `writers` and `memory` are the groups of rows; `report` writes them.
`postgres` and `spark` have groups of their own.
"""
