"""The few loops that torch has no fast operator for on a CPU, in C, compiled on first use. A leaf: knows no model."""
