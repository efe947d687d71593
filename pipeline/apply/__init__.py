"""From the change log into one mirror: the newest change of each key, merged and accounted for."""
