"""Tables by a declared schema: columns become features and targets, row by row, by public declarations only.

The transformation of a row depends on that row and on the schema, never on another row. So adding or removing a record
changes nothing else, and the promise covers the transformation (privacy.md, rule 13). The schema's fingerprint is part
of the public plan: all silos transform alike. This package does not import torch.
"""

from __future__ import annotations

from rpdp.tables.encoded_table import EncodedTable
from rpdp.tables.table_files import find_table, read_table
from rpdp.tables.table_schema import TableSchema

__all__ = ["EncodedTable", "TableSchema", "find_table", "read_table"]
