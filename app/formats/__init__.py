"""Text in, values out: canary files, reports and the documents both the files and the API speak."""
