"""Children that answer questions, one JSON object per line, and are killed when they are late."""
