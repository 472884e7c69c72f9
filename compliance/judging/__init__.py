"""Lines in, verdicts out: was every limit kept, did each stream get its due, and where is that not known?"""
