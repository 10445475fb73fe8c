"""Two runs or checks compared: pairs, significance, verdict."""
