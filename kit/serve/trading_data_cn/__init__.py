"""`trading-data-cn-mcp`: securities, universes and bars of the mainland market."""
