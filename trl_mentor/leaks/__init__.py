"""What a hint must not give away: `gate` asks, `rules` lists the rules of each domain, the rest are the rules."""
