"""The resolved cell as frozen models, its identity, and plain-arithmetic formulas. No torch."""
