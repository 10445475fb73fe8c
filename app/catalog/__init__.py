"""What should be: suites, canaries, checks; canary files; import and export; secrets."""
