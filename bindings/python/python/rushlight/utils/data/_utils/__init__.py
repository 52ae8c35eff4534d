"""Parts of the loader. Modules that only worker processes need are imported with the first of them."""

#: Seconds between two looks at whether the other side is alive.
MP_STATUS_CHECK_INTERVAL = 5.0
