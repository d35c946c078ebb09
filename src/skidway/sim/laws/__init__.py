"""What must hold in every run, whatever befalls the cluster."""
