"""What is counted over many records: rates, intervals, times, and one summary of them all."""
