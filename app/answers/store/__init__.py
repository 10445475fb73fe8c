"""Rows and queries of generated answers.

- `answer_rows`: answers of runs, ratings of judges, calibrations, and answers drawn for people to label.
- `feedback_rows`: what users said of answers.
"""
