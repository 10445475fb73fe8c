"""Whether canaries fail more than before: baselines, the detector, habits, replay."""
