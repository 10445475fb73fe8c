"""Detection: whether canaries fail more than in the baseline, since when, and which. Values in, values out.

An e-detector in the Shiryaev-Roberts form (Shin, Ramdas and Rinaldo, "E-detectors", 2022).
"""
