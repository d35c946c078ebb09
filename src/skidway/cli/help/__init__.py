"""Help pages, completion, and what is said about words that make no sense."""
