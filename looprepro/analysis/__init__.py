"""From runs/ to numbers: collect, statistics, references, and the one table structure. No torch, no rendering."""
