"""`historical-news-cn-mcp`: dated company news of the mainland market."""
