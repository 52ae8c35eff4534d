"""Parts of the loader. Modules that only worker processes need are imported with the first of them."""
