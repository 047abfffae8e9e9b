"""What the guards cost, as ratios to the plainest Python that does the same work unguarded."""
