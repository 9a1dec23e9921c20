"""Features of SQLite as SQLAlchemy's dialect suite names them; the same for every driver."""

from sqlalchemy import event
from sqlalchemy.pool import Pool
from sqlalchemy.testing import config, exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

_SUPPORTED = """
    aggregate_order_by autocommit boolean_col_expressions check_constraint_reflection computed_columns
    computed_columns_reflect_persisted computed_columns_stored computed_columns_virtual create_table_as
    create_temp_table_as ctes ctes_on_dml ctes_with_update_delete ctes_with_values date_historic
    datetime_historic datetime_literals dbapi_lastrowid deferrable_fks except_ expression_server_defaults
    fk_constraint_option_reflection_ondelete_noaction fk_constraint_option_reflection_ondelete_restrict
    fk_constraint_option_reflection_onupdate_restrict float_or_double_precision_behaves_generically
    foreign_key_constraint_name_reflection foreign_key_constraint_option_reflection_ondelete
    foreign_key_constraint_option_reflection_onupdate has_temp_table implicit_default_schema
    index_ddl_if_exists indexes_with_expressions infinity_floats inline_check_constraint_reflection
    intersect isolation_level json_type legacy_unconditional_json_extract mod_operator_as_percent_sign
    non_updating_cascade nullsordering nvarchar_types percent_schema_names
    precision_numerics_enotation_small reflect_table_options reflects_pk_names regexp_match
    repeated_column_foreign_keys repeated_remote_col_foreign_keys savepoints server_defaults
    skip_autocommit_rollback supports_bitwise_and supports_bitwise_not supports_bitwise_or
    supports_bitwise_shift table_ddl_if_exists temp_table_names temporary_views timestamp_microseconds
    tuple_in unicode_ddl update_from views window_functions window_range window_range_numeric
"""

_UNSUPPORTED = """
    implicitly_named_constraints parens_in_union_contained_select_w_limit_offset
    parens_in_union_contained_select_wo_limit_offset
"""


class Requirements(SuiteRequirements):
    def get_isolation_levels(self, config):
        return {"default": "SERIALIZABLE", "supported": ["READ UNCOMMITTED", "SERIALIZABLE", "AUTOCOMMIT"]}

    def get_order_by_collation(self, config):
        return "NOCASE"


for _name in _SUPPORTED.split():
    setattr(Requirements, _name, property(lambda self: exclusions.open()))
for _name in _UNSUPPORTED.split():
    setattr(Requirements, _name, property(lambda self: exclusions.closed()))


@event.listens_for(Pool, "checkout")
def _attach_schema(connection, record, proxy):
    # SQLAlchemy attaches the suite's second schema to its main engine only. Its own runs are in memory, where
    # the tests make no other engines.
    if "test_schema" not in [name for _, name, _ in connection.execute("PRAGMA database_list")]:
        connection.execute(f"ATTACH DATABASE '{config.db.driver}_test_schema.db' AS test_schema")
