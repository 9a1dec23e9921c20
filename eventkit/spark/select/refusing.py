"""What is wrong with a query, under the name that S3 Select has for it, and where it stands."""

CODES = {
    "ExpressionTooLong": "The query has more than 256 KiB.",
    "LexerInvalidChar": "A character that no SQL has.",
    "LexerInvalidLiteral": "A text or a number that does not end, or ends in the wrong place.",
    "LexerInvalidIONLiteral": "What stands between backticks is no moment.",
    "LexerInvalidOperator": "An operator that S3 Select does not have.",
    "ParseEmptySelect": "There is no query, or nothing between SELECT and FROM.",
    "ParseSelectMissingFrom": "There is no FROM.",
    "ParseUnexpectedToken": "Something stands where it cannot.",
    "ParseUnexpectedKeyword": "A word of SQL stands where a name or a value is needed; quote it if it is a name.",
    "ParseExpectedExpression": "A value is missing.",
    "ParseExpectedKeyword": "A word of SQL is missing.",
    "ParseExpectedTokenType": "A bracket, a comma or the like is missing.",
    "ParseExpectedNumber": "A whole number is missing.",
    "ParseExpectedMember": "The values of IN are missing.",
    "ParseExpectedTypeName": "CAST needs a type that S3 Select has.",
    "ParseExpectedDatePart": "A part of a date is missing.",
    "ParseExpectedWhenClause": "CASE needs a WHEN.",
    "ParseExpectedIdentForAlias": "A name is missing after AS.",
    "ParseExpectedLeftParenAfterCast": "CAST needs a bracket.",
    "ParseExpectedLeftParenBuiltinFunctionCall": "A function needs a bracket.",
    "ParseExpectedRightParenBuiltinFunctionCall": "The call of a function does not end.",
    "ParseInvalidPathComponent": "A path has a part that is none.",
    "ParseInvalidTypeParam": "The size of a type is none.",
    "ParseAsteriskIsNotAloneInSelectList": "* stands beside other columns.",
    "ParseUnsupportedCallWithStar": "Only COUNT takes *.",
    "ParseNonUnaryAgregateFunctionCall": "An aggregate takes one value.",
    "UnsupportedSqlStructure": "SQL that S3 Select does not have: GROUP BY, ORDER BY, JOIN, a query in a query.",
    "UnsupportedSyntax": "The query is nested too deeply.",
    "UnsupportedFunction": "S3 Select has no function of that name.",
    "EvaluatorInvalidArguments": "A function has too few or too many arguments, or there is a division by zero.",
    "IncorrectSqlFunctionArgumentType": "A function was given a value of the wrong type.",
    "InvalidExpressionType": "An operator was given a value of the wrong type.",
    "EvaluatorInvalidTimestampFormatPattern": "The pattern of TO_STRING has a symbol that does not exist.",
    "LikeInvalidInputs": "LIKE needs texts, and one character for ESCAPE.",
    "InvalidDataSource": "The FROM names something else than S3Object.",
    "InvalidKeyPath": "The path of the FROM does not fit the file.",
    "EvaluatorBindingDoesNotExist": "The file has no such column.",
    "AmbiguousFieldName": "Two columns have that name; quote the one you mean.",
    "MissingHeaders": "A column is asked for by name, and the file's header is not used.",
    "InvalidColumnIndex": "The file has fewer columns than that.",
    "InvalidRequestParameter": "An option does not fit the file.",
    "InvalidCompressionFormat": "The file is not compressed as it should be.",
    "CSVParsingError": "The file is not CSV.",
    "JSONParsingError": "The file is not JSON.",
    "ParquetParsingError": "The file is not Parquet.",
    "OverMaxRecordSize": "One JSON value of the file is too large.",
    "CastFailed": "A value cannot become what it is cast to.",
    "ValueParseFailure": "A value is no moment, or none with this pattern.",
    "IntegerOverflow": "A number has become too large.",
}
"""The codes of S3 Select that `eventkit select` gives, and what each means."""


class SelectError(ValueError):
    """A query that cannot be answered.

    ``code`` is S3 Select's name for the reason, and ``position`` the place in the query, from 0, where it has one.
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
