"""What a training job uses: verdicts, the exclusion feed, the launcher. httpx and msgspec only."""
