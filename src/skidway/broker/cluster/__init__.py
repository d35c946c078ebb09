"""This node's part in its cluster: quorum, controller, registration, links to other nodes."""
