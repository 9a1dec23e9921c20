"""Archives of streams: all that a topic ever had, in files of Parquet, for longer than the database keeps it.

It takes Arrow (``pip install 'eventkit[spark]'``) and no Spark: what reads a database and writes files waits for one
disk, and a cluster would not make it wait for less.
"""
