"""The looped transformer, its injections and its depths. Pure torch; knows no task, no file and no command."""
