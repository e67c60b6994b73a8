"""From lines of text to translations, scores and alignments."""
