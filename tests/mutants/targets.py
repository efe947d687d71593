"""Lists the modules that decide, and the fast tests that must notice a wrong decision.

The tests are of the module's own layer, the nearest first.
"""

CHECKS = "tests/checks"
LANDING = "tests/pipeline/landing"
APPLY = "tests/pipeline/apply"
LAGS = "tests/pipeline/lags"
REREAD = "tests/pipeline/backfill"
OBSERVE = "tests/monitor/observe"
MYSQL = "tests/pipeline/sources/mysql"

READINESS = tuple(f"{CHECKS}/test_{one}.py" for one in ("proof", "blocks", "readiness", "ordering"))
CHECKPOINTS = tuple(
    f"{LANDING}/test_{one}.py" for one in ("next_checkpoint", "next_checkpoint_keeps", "departed")
)

TARGETS: dict[str, tuple[str, ...]] = {
    "checks/proof.py": READINESS,
    "checks/readiness.py": READINESS,
    "checks/blocks.py": (
        *READINESS,
        "tests/monitor/test_pauses.py",
    ),
    "checks/named_rows.py": (f"{CHECKS}/test_named_rows.py", f"{CHECKS}/test_blocks.py"),
    "checks/certificate.py": (
        f"{CHECKS}/test_certificate.py",
        "tests/monitor/test_gate_copies.py",
        f"{CHECKS}/test_readiness.py",
    ),
    "checks/probes/completeness.py": (f"{CHECKS}/probes/test_completeness.py",),
    "checks/ledger.py": (
        f"{CHECKS}/test_ledger.py",
        "tests/monitor/store/test_ledger.py",
        "tests/monitor/store/test_copy_places.py",
    ),
    "checks/counting.py": (f"{CHECKS}/test_counting.py", f"{CHECKS}/probes/test_range_counts.py"),
    "checks/compare/reconcile.py": (f"{CHECKS}/compare/test_reconcile.py",),
    "checks/compare/look.py": (
        f"{CHECKS}/compare/test_walk.py",
        f"{CHECKS}/probes/test_values.py",
        f"{CHECKS}/probes/test_values_changed.py",
    ),
    "checks/compare/walk.py": (f"{CHECKS}/compare/test_walk.py",),
    "checks/compare/keyed.py": (f"{CHECKS}/compare/test_keyed.py",),
    "checks/compare/keyed_cycle.py": (f"{CHECKS}/compare/test_keyed.py",),
    "checks/compare/changed.py": (
        f"{CHECKS}/compare/test_changed.py",
        f"{CHECKS}/probes/test_values_changed.py",
    ),
    "checks/compare/coverage.py": (
        f"{CHECKS}/compare/test_coverage.py",
        f"{CHECKS}/probes/test_values_coverage.py",
    ),
    "pipeline/clocks.py": ("tests/pipeline/test_clocks.py", "tests/pipeline/test_clocks_cuts.py"),
    "pipeline/model.py": (
        "tests/pipeline/test_model.py",
        f"{APPLY}/test_account.py",
        f"{CHECKS}/test_ranges.py",
        f"{LANDING}/test_batch_stats.py",
        f"{LANDING}/test_lost_logs.py",
        f"{LANDING}/test_landing_source.py",
    ),
    "pipeline/checkpoint.py": (
        "tests/pipeline/test_checkpoint.py",
        "tests/pipeline/test_checkpoint_incarnations.py",
        f"{CHECKS}/test_proof.py",
        f"{LANDING}/test_next_checkpoint.py",
    ),
    "pipeline/lags/lag.py": (f"{LAGS}/test_lag.py", f"{LAGS}/test_samples.py"),
    "pipeline/lags/samples.py": (f"{LAGS}/test_samples.py", f"{LAGS}/test_lag.py"),
    "pipeline/landing/batch_stats.py": (
        f"{LANDING}/test_batch_stats.py",
        f"{LANDING}/test_heartbeats.py",
        f"{LANDING}/test_repeated_snapshots.py",
        f"{LANDING}/test_bases.py",
        f"{LANDING}/test_dropped_databases.py",
    ),
    "pipeline/landing/topic_counts.py": (f"{LANDING}/test_topic_counts.py",),
    "pipeline/landing/order_check.py": (f"{LANDING}/test_order_check.py",),
    "pipeline/landing/next_checkpoint.py": (
        f"{LANDING}/test_shards_named_in_ddl.py",
        *CHECKPOINTS,
        f"{LANDING}/test_unreadable_lists.py",
        f"{LANDING}/test_quarantine.py",
    ),
    "pipeline/landing/gaps.py": (
        f"{LANDING}/test_new_rules.py",
        f"{LANDING}/test_failover_divergence.py",
        f"{LANDING}/test_lost_logs.py",
        f"{LANDING}/test_replaced_logs.py",
        f"{LANDING}/test_left_out.py",
        f"{LANDING}/test_collector_lists.py",
        f"{LANDING}/test_unreadable_lists.py",
        f"{LANDING}/test_hidden_topics.py",
    ),
    "pipeline/landing/backfill.py": (
        f"{LANDING}/test_backfill.py",
        f"{LANDING}/test_backfill_columns.py",
    ),
    "pipeline/landing/quarantine.py": (
        f"{LANDING}/test_quarantine.py",
        f"{LANDING}/test_resubmitting.py",
        f"{LANDING}/test_events_again.py",
    ),
    "pipeline/landing/plan.py": tuple(
        f"{LANDING}/test_{one}.py" for one in ("plan", "hidden_topics")
    ),
    "pipeline/landing/epochs.py": (
        f"{LANDING}/test_epoch.py",
        f"{LANDING}/test_epochs.py",
        f"{LANDING}/test_epoch_bounds.py",
        f"{LANDING}/test_reordered.py",
        f"{LANDING}/test_redelivery.py",
    ),
    "pipeline/landing/judge.py": tuple(
        f"{LANDING}/test_{one}.py"
        for one in ("held_sources", "refused_rows", "no_schemas", "heartbeats")
    ),
    "pipeline/landing/source_holds.py": (f"{LANDING}/test_source_holds.py",),
    "pipeline/landing/redelivery.py": (f"{LANDING}/test_redelivery.py",),
    "pipeline/landing/listing.py": (
        f"{LANDING}/test_acknowledgements.py",
        f"{LANDING}/test_listing.py",
        f"{LANDING}/test_landing_source.py",
        f"{LANDING}/test_topic_shards.py",
        f"{LANDING}/test_hazards.py",
    ),
    "pipeline/landing/bases.py": (
        f"{LANDING}/test_bases.py",
        f"{LANDING}/test_dropped_databases.py",
        f"{LANDING}/test_repeated_snapshots.py",
        *CHECKPOINTS,
    ),
    "pipeline/changelog/transactions.py": (
        "tests/pipeline/delta/test_sent_transactions.py",
        "tests/pipeline/delta/test_transactions.py",
        "tests/pipeline/delta/test_first_events.py",
        "tests/pipeline/delta/test_resumed.py",
        "tests/pipeline/delta/test_log_memory.py",
    ),
    "pipeline/delta/object_store.py": tuple(
        f"tests/pipeline/delta/test_{one}.py" for one in ("bucket_words", "bucket_races", "store")
    ),
    "pipeline/apply/row_metadata.py": (f"{APPLY}/test_provenance.py", f"{APPLY}/test_decide.py"),
    "pipeline/apply/fold.py": (f"{APPLY}/test_fold.py",),
    "pipeline/apply/decide.py": (f"{APPLY}/test_decide.py",),
    "pipeline/apply/partial_rows.py": (f"{APPLY}/test_partial_rows.py",),
    "pipeline/apply/account.py": (f"{APPLY}/test_account.py",),
    "pipeline/backfill/readers.py": (f"{REREAD}/test_readers.py",),
    "pipeline/backfill/runner.py": (
        f"{REREAD}/test_selection.py",
        f"{REREAD}/test_offer.py",
    ),
    "pipeline/backfill/task.py": (f"{REREAD}/test_selection.py", f"{REREAD}/test_repair.py"),
    "pipeline/backfill/dry_run.py": (
        f"{REREAD}/test_selection.py",
        f"{REREAD}/test_preview.py",
    ),
    "pipeline/apply/archive.py": (
        f"{APPLY}/test_archived_rows.py",
        f"{APPLY}/test_archived_floors.py",
    ),
    "pipeline/apply/images.py": (
        f"{APPLY}/test_image_decisions.py",
        f"{APPLY}/test_image_export.py",
    ),
    "pipeline/image.py": ("tests/pipeline/test_image.py",),
    "pipeline/sources/mysql/ddl_parser.py": (f"{MYSQL}/test_ddl_parser.py",),
    "pipeline/sources/mysql/ddl_effects.py": tuple(
        f"{MYSQL}/test_ddl_effects{one}.py" for one in ("", "_compare", "_defaults", "_differences")
    ),
    "pipeline/sources/postgres/slots.py": ("tests/pipeline/sources/postgres/test_slots.py",),
    "monitor/observe/recorder.py": (
        f"{OBSERVE}/test_recorder.py",
        "tests/monitor/test_full_store.py",
    ),
    "monitor/observe/verdicts.py": (f"{OBSERVE}/test_verdicts.py",),
    "monitor/observe/sampler.py": (f"{OBSERVE}/test_watcher.py", f"{OBSERVE}/test_sampler.py"),
    "monitor/waivers.py": ("tests/monitor/test_waivers.py",),
    "monitor/auto_repair.py": ("tests/monitor/test_auto_repair.py",),
    "monitor/observe/clocks.py": (f"{OBSERVE}/test_clocks.py",),
    "monitor/observe/assessor.py": (
        f"{OBSERVE}/test_revocations.py",
        "tests/monitor/test_gate_copies.py",
        "tests/monitor/test_gate_images.py",
        "tests/monitor/test_gate_shards.py",
        "tests/monitor/test_late.py",
    ),
    "monitor/gate.py": (
        f"{OBSERVE}/test_merge_demand.py",
        *(
            f"tests/monitor/{one}.py"
            for one in ("test_gate_shards", "test_gate_images", "test_gate_copies", "test_gate")
        ),
    ),
    "alerts/causes.py": ("tests/alerts/test_causes.py", "tests/alerts/test_consequences.py"),
    "alerts/lifecycle.py": tuple(
        f"tests/alerts/test_{one}.py" for one in ("lifecycle", "round", "causes", "consequences")
    ),
}
