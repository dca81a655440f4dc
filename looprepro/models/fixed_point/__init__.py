"""The Fixed-Point Reasoner: its loop, its solver, its halting. Pure torch; knows no task, no file and no command."""
