"""What befalls a simulated cluster: kills, cuts, damage, losses, and administrators at work."""
