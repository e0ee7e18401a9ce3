"""Speed, memory and load, measured; none of it is a test."""
