"""Bugs in the transformation of tables: what one row becomes must not depend on another."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCHEMA = "tests/tables/test_table_schema.py::"
_STUDIES = "tests/studies/test_study_tables.py::"

TABLES = (
    Mutant(
        "features-centred-by-the-table",
        "rule 13",
        "tables/table_schema.py",
        "return np.concatenate(parts, axis=1), readings",
        "return np.concatenate(parts, axis=1) - np.concatenate(parts, axis=1).mean(0), readings",
        (f"{_SCHEMA}TestPurity::test_a_row_is_encoded_alike_in_every_table",),
    ),
    Mutant(
        "values-outside-the-range-not-clipped",
        "rule 13",
        "tables/table_columns.py",
        "        clipped = min(max(value, low), high)\n",
        "        clipped = value\n",
        (f"{_SCHEMA}TestFeatures::test_values_not_as_declared",),
    ),
    Mutant(
        "one-persons-records-on-both-sides-of-the-split",
        "rule 13",
        "tables/table_schema.py",
        "self._tests(rows, ids if subjects is None else subjects, seed)",
        "self._tests(rows, ids, seed)",
        (f"{_SCHEMA}TestSplit::test_all_records_of_a_person_are_on_one_side",),
    ),
    Mutant(
        "schema-fingerprint-without-ranges",
        "rule 12",
        "tables/table_schema.py",
        "columns = [[name, each.kind, vars(each)] for name, each in self._used.items()]",
        "columns = [[name, each.kind] for name, each in self._used.items()]",
        (f"{_SCHEMA}TestFingerprint::test_it_covers_whatever_decides_on_numbers",),
    ),
    Mutant(
        "plans-for-another-schema-admitted",
        "rule 12",
        "federation/admission_checks.py",
        "    if public.schema_fingerprint != silo.schema_fingerprint:\n",
        "    if False:\n",
        (f"{_STUDIES}TestSchemaInThePlan::test_silos_admit_only_plans_for_their_schema",),
    ),
    Mutant(
        "budgets-for-other-persons-than-the-tables",
        "section 7",
        "studies/study_budgets.py",
        "    if differ:\n",
        "    if False:\n",
        (f"{_STUDIES}TestSilos::test_persons_share_a_budget",),
    ),
)
