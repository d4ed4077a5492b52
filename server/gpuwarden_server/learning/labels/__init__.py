"""What incidents turned out to be: people's verdicts, and what repairs, checks and jobs showed."""
