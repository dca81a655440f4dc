"""The models that the Fixed-Point Reasoner is compared with: TRM, HRM, URM, EqR, Attractor. Pure torch."""
