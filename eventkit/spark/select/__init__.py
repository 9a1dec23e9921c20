"""S3 Select's SQL over one file of CSV, JSON or Parquet, and the errors in a query, with S3's codes and their position.

`grammar` parses a query, and `translation` checks it and only then translates it into Spark's SQL, so that errors are
reported in milliseconds.  `query` runs it.
"""

__all__ = ["SelectError"]

CODES = {
    "ExpressionTooLong": "The query has more than 256 KiB.",
    "LexerInvalidChar": "A character that is not valid in SQL.",
    "LexerInvalidLiteral": "A text or a number that does not end, or ends in the wrong place.",
    "LexerInvalidIONLiteral": "The text between backticks is not a timestamp.",
    "LexerInvalidOperator": "An operator that S3 Select does not have.",
    "ParseEmptySelect": "There is no query, or nothing between SELECT and FROM.",
    "ParseSelectMissingFrom": "There is no FROM.",
    "ParseUnexpectedToken": "A token is not allowed here.",
    "ParseUnexpectedKeyword": "A keyword where a name or a value is required; quote it if it is a name.",
    "ParseExpectedExpression": "A value is missing.",
    "ParseExpectedKeyword": "A keyword is missing.",
    "ParseExpectedTokenType": "A bracket, a comma or similar is missing.",
    "ParseExpectedNumber": "A whole number is missing.",
    "ParseExpectedMember": "The values of IN are missing.",
    "ParseExpectedTypeName": "CAST needs a type that S3 Select has.",
    "ParseExpectedDatePart": "A part of a date is missing.",
    "ParseExpectedWhenClause": "CASE needs a WHEN.",
    "ParseExpectedIdentForAlias": "A name is missing after AS.",
    "ParseExpectedLeftParenAfterCast": "CAST needs a bracket.",
    "ParseExpectedRightParenBuiltinFunctionCall": "The call of a function does not end.",
    "ParseInvalidPathComponent": "A path has an invalid part.",
    "ParseInvalidTypeParam": "The size of a type is invalid.",
    "ParseAsteriskIsNotAloneInSelectList": "* is combined with other columns.",
    "ParseUnsupportedCallWithStar": "Only COUNT takes *.",
    "ParseNonUnaryAgregateFunctionCall": "An aggregate takes one value.",
    "UnsupportedSqlStructure": "SQL that S3 Select does not have: GROUP BY, ORDER BY, JOIN, subqueries.",
    "UnsupportedSyntax": "The query is nested too deeply.",
    "UnsupportedFunction": "S3 Select has no function of that name.",
    "EvaluatorInvalidArguments": "A function has too few or too many arguments, or there is a division by zero.",
    "IncorrectSqlFunctionArgumentType": "A function was given a value of the wrong type.",
    "InvalidExpressionType": "An operator was given a value of the wrong type.",
    "EvaluatorInvalidTimestampFormatPattern": "The pattern of TO_STRING has a symbol that does not exist.",
    "LikeInvalidInputs": "LIKE needs texts, and one character for ESCAPE.",
    "InvalidDataSource": "FROM names a table other than S3Object.",
    "InvalidKeyPath": "The path in FROM does not fit the file.",
    "EvaluatorBindingDoesNotExist": "The file has no such column.",
    "AmbiguousFieldName": "Two columns have that name; quote the one you mean.",
    "MissingHeaders": "A column is selected by name, but the file's header is not used.",
    "InvalidColumnIndex": "The file has fewer columns than that.",
    "InvalidRequestParameter": "An option does not fit the file.",
    "InvalidCompressionFormat": "The file does not have the given compression.",
    "CSVParsingError": "The file is not CSV.",
    "JSONParsingError": "The file is not JSON.",
    "ParquetParsingError": "The file is not Parquet.",
    "OverMaxRecordSize": "One JSON value of the file is too large.",
    "CastFailed": "A value cannot be cast to the type.",
    "ValueParseFailure": "A value is not a timestamp, or does not match the pattern.",
    "IntegerOverflow": "A number is too large.",
}
"""The codes of S3 Select that `eventkit select` reports, with their meaning."""


class SelectError(ValueError):
    """A query that cannot be answered.

    ``code`` is S3 Select's name for the reason, and ``position`` the offset in the query, from 0, or None.
    """

    def __init__(self, code: str, reason: str, sql: str = "", position: int | None = None) -> None:
        super().__init__(code, reason, sql, position)
        self.code = code
        self.reason = reason
        self.sql = sql
        self.position = position

    def __str__(self) -> str:
        if self.position is None:
            return f"{self.code}: {self.reason}"
        before = self.sql[: self.position]
        line, column = before.count("\n") + 1, self.position - (before.rfind("\n") + 1) + 1
        return f"{self.code} at line {line}, column {column}: {self.reason}"
