"""One round of looking: samples, worlds for probes, verdicts, assessments."""
