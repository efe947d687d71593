"""What must be put right at the servers before a mirror can be believed?  Pure rules over facts."""
