"""Training a cell and measuring it: the loop, schedules, checkpoints, evaluation over budgets. Imports torch."""
