"""`kit-mcp`: what an agent needs to use a workspace."""
