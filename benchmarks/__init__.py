"""eventkit beside bare apsw, beside its peers and beside Spark's own readers and writers, measured.

``python -m benchmarks`` runs everything and rewrites ``benchmarks/RESULTS.md``.  Absolute numbers are the
machine's; what counts are the ratios, so whoever is compared runs in turns, in the same minute, in the same
folder, each in a process of its own.

`rounds` lets contestants take turns; `bare`, `kits` and `peers` are the contestants; `throughput`, `crowd`,
`waking`, `idling`, `sharing`, `locking`, `writers` and `memory` are the groups of rows; `report` writes them down.
`postgres` and `spark` have groups of their own.
"""
