"""The protocol of KIP-848: heartbeats, epochs, assignments made by the coordinator."""
