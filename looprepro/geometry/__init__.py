"""The geometry of a linear operator's powers: directions, Gram matrices, Toeplitz defect, spectrum.

Float64, CPU, pure functions of a d x d matrix A that acts on columns, x -> A x.
"""
