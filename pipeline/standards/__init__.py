"""Standards: rules that replace values before they reach the lake, one module each."""
