"""What the client costs, measured against a canned server in another process."""
