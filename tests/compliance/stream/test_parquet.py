import pyarrow as pa

from compliance.stream.parquet import parquet, table_of

SCHEMA = pa.schema({"name": pa.string(), "counts": pa.list_(pa.int64()), "at": pa.timestamp("us", tz="UTC")})
TABLE = pa.table([["a", None], [[1, 2], None], [5, None]], schema=SCHEMA)


def test_what_is_written_is_read_and_several_files_are_one_table():
    assert table_of([parquet(TABLE), parquet(TABLE)], SCHEMA) == pa.concat_tables([TABLE, TABLE])


def test_no_file_is_an_empty_table():
    assert table_of([], SCHEMA) == SCHEMA.empty_table() == table_of([parquet(SCHEMA.empty_table())], SCHEMA)
