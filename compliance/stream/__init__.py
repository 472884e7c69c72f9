"""The job: lines of the access log in, clean rows and windows out, each line once."""
