"""What the verbs of `sluice` share: options, the client of the service, status without one."""
