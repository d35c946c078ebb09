"""Clients that speak the real protocol to simulated brokers."""
