"""What the loader is made of. What only worker processes need is imported with the first of them."""
