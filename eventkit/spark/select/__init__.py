"""The SQL of S3 Select over one file of CSV, JSON or Parquet.

A query is read by a parser of our own (`tokens`, `grammar`), looked through (`checking`, `naming`), and only then said
to Spark in its words (`translating`), so that what is wrong with it is told in milliseconds, with S3's code and the
place.  `running` runs it.
"""

from .refusing import SelectError

__all__ = ["SelectError"]
