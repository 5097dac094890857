"""Bugs of what statistics ask for and make of it: contributions, noise from private facts, narrow intervals."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COVERAGE = "tests/statistics/test_coverage.py::"
_INQUIRY = "tests/statistics/test_inquiry.py::"
_MEASURES = "tests/statistics/test_measures.py::"
_CELLS = "tests/statistics/test_evaluation_cells.py::"
_PLACE = "tests/statistics/test_private_columns.py::"
_TIME = "tests/statistics/test_request_time.py::"
_COMMAND = "tests/cli/test_statistics.py::"

ESTIMATES = (
    Mutant(
        "slowest-request-without-failing-records",
        "rule 16",
        "statistics/request_time.py",
        "block = 2.0 * together + 2 * BLOCK * fixed + (math.log2(BLOCK) + 1) * BLOCK * each",
        "block = 2.0 * together",
        (f"{_TIME}test_an_evaluation_with_failing_records_is_within_the_measured_time",),
    ),
    Mutant(
        "width-of-a-request-not-limited",
        "rule 16",
        "statistics/column_source.py",
        "if entries > MOST_ENTRIES:",
        "if False:",
        (f"{_MEASURES}test_how_much_a_record_adds_is_limited",),
    ),
    Mutant(
        "running-counts-longer-than-1",
        "section 9",
        "statistics/measures.py",
        "value = np.where(missing, 1.0, contribution(self.bins))",
        "value = np.where(missing, 1.0, contribution(self.bins) / contribution(self.bins)[0])",
        (f"{_MEASURES}test_no_part_is_longer_than_1",),
    ),
    Mutant(
        "interval-of-a-quantile-as-of-independent-counts",
        "section 9",
        "statistics/intervals.py",
        "np.square(root - share * root[-1]).sum(axis=1)",
        "np.square(np.diag(root) - share * root[-1])",
        (f"{_COVERAGE}test_quantiles_cover_where_noise_is_wider_than_a_bin",),
    ),
    Mutant(
        "odd-settings-of-an-evaluation-not-refused-in-words",
        "rule 12",
        "statistics/evaluation_measures.py",
        "        except (TypeError, OverflowError) as error:\n",
        "        except ZeroDivisionError as error:\n",
        (f"{_CELLS}test_whatever_a_server_writes_is_refused_in_words_or_keeps_the_norm",),
    ),
    Mutant(
        "models-that-compare-records-evaluated",
        "rule 5",
        "statistics/evaluation_cells.py",
        "        if is_mixing or changed:\n",
        "        if changed:\n",
        (f"{_CELLS}test_a_model_in_which_records_reach_each_other_is_refused",),
    ),
    Mutant(
        "comparing-hidden-by-zeros-not-seen",
        "rule 5",
        "statistics/evaluation_cells.py",
        "self._is_mixing(made_up) | self._is_mixing(own)",
        "self._is_mixing(own)",
        (f"{_CELLS}test_a_model_in_which_records_reach_each_other_is_refused",),
    ),
    Mutant(
        "noise-for-whole-budgets-of-persons-in-several-silos",
        "section 7",
        "planning/allowances.py",
        "part = share / public.silos_per_person",
        "part = share",
        ("tests/planning/test_declared_plan.py::test_declared_budgets_allow_what_accounts_will",),
    ),
    Mutant(
        "statistics-of-training-records-from-ledgers-of-all",
        "section 9",
        "studies/statistics_run.py",
        "[~table.is_test] if spec.evaluation.share is None else ",
        "[~table.is_test] if True else ",
        (f"{_COMMAND}test_one_study_has_statistics_training_and_evaluation",),
    ),
    Mutant(
        "sampling-spread-dropped",
        "section 9",
        "statistics/intervals.py",
        "if self.has_spread else np.zeros_like(weights)",
        "if False else np.zeros_like(weights)",
        (f"{_COVERAGE}test_representative_covers_all_records_if_values_do_not_depend_on_budgets",),
    ),
    Mutant(
        "interval-of-one-silos-noise-for-all",
        "section 9",
        "statistics/noisy_sums.py",
        "variance += one**2 / len(given)",
        "variance = one**2 / len(given)",
        (f"{_INQUIRY}test_noisy_sums_add_silos_and_average_the_rounds_that_each_answered",),
    ),
    Mutant(
        "noise-that-a-mean-adds-not-in-its-ratio",
        "section 9",
        "statistics/intervals.py",
        "square = below**2 - z**2 * variance.square",
        "square = below**2",
        (f"{_COVERAGE}test_a_ratio_covers_where_its_divisor_is_uncertain",),
    ),
    Mutant(
        "noise-chosen-from-real-budgets",
        "rule 12",
        "statistics/private_columns.py",
        "return choose_noise(inquiry, self.known, self.terms,",
        "return choose_noise(inquiry, "
        "type(self.known)(np.asarray(self.budgets.epsilon), self.known.records), self.terms,",
        (f"{_PLACE}test_noise_does_not_depend_on_real_budgets",),
    ),
    Mutant(
        "noise-chosen-from-the-number-of-real-records",
        "rule 12",
        "studies/statistics_run.py",
        "    if records is None:\n        if tables is None:",
        "    if tables is not None or records is None:\n        if tables is None:",
        (f"{_COMMAND}test_noise_comes_from_what_is_declared_and_not_from_the_tables",),
    ),
    Mutant(
        "seeded-noise-on-real-records",
        "rule 4",
        "cli/statistics_command.py",
        "        spec.require_simulation()\n",
        "        pass\n",
        (f"{_COMMAND}test_a_real_run_is_charged_to_the_ledgers_and_shows_the_same_numbers_again",),
    ),
    Mutant(
        "values-centred-by-the-data",
        "rule 13",
        "statistics/columns.py",
        "(self.clipped(values) - self.middle) / self.half",
        "(self.clipped(values) - np.nanmean(values)) / self.half",
        (f"{_MEASURES}test_a_record_s_cells_do_not_depend_on_other_records_or_on_which_are_asked_for",),
    ),
    Mutant(
        "powers-together-longer-than-1",
        "section 9",
        "statistics/measures.py",
        "levels / np.linalg.norm(levels * (1.0 - self.centres))",
        "levels / levels.max()",
        (f"{_MEASURES}test_no_part_is_longer_than_1",),
    ),
    Mutant(
        "sum-divided-by-half-its-range",
        "section 9",
        "statistics/measures.py",
        "values = self.facts.clipped(columns.values[self.column][rows]) / self.facts.bound",
        "values = self.facts.clipped(columns.values[self.column][rows]) / self.facts.half",
        (f"{_MEASURES}test_no_part_is_longer_than_1",),
    ),
    Mutant(
        "values-outside-the-public-range-not-clipped",
        "section 9",
        "statistics/columns.py",
        "return np.clip(values.astype(np.float64), self.low, self.high)",
        "return values.astype(np.float64)",
        (f"{_MEASURES}test_no_part_is_longer_than_1",),
    ),
    Mutant(
        "measures-of-another-size-accepted",
        "rule 6",
        "statistics/measures.py",
        "if settings or made.spec != spec:",
        "if settings:",
        (f"{_MEASURES}test_a_strange_measure_is_refused_from_its_text",),
    ),
    Mutant(
        "columns-of-another-range-accepted",
        "rule 6",
        "statistics/columns.py",
        "if self.declared[name] != facts:",
        "if False:",
        (f"{_MEASURES}test_a_column_must_be_declared_alike_here",),
    ),
    Mutant(
        "record-for-which-a-function-fails-seen",
        "rule 12",
        "statistics/columns.py",
        "    except Exception:  # whatever it raises says something of the record\n        return np.nan\n",
        "    except Exception:\n        raise\n",
        (f"{_MEASURES}test_a_function_of_one_record_is_a_column_with_a_public_range",),
    ),
    Mutant(
        "check-that-leaves-out-a-sampling-spread",
        "section 9",
        "statistics/budget_check.py",
        'if {e.estimator for e in everyone} != {"everyone"}',
        "if False",
        (f"{_INQUIRY}test_the_check_needs_the_spread_of_everyone",),
    ),
)
