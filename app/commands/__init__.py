"""The commands of `coalmine`, by subject; `cli` puts them together."""
