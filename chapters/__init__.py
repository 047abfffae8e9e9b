"""The reading, in order: one idea a file, with its code, its demo and its exercises.

``python -m chapters`` lists them; ``python -m chapters 3`` runs one.
"""
