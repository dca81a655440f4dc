"""looprepro: reproduce the tables of two papers on looped transformers, from a sweep file to a judged claim."""

__version__ = "0.1.0"
