"""What are Spark's workers told, by variables of their environment?"""

PRELOADED = "SLUICE_PLUG_INS"  # modules that they begin with, parted by commas
NICENESS = "SLUICE_NICENESS"  # by how much others go before them, where cores are scarce
