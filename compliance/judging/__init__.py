"""Lines in, verdicts out: was every limit kept, did everybody get what was owed, and where can that not be known?"""
