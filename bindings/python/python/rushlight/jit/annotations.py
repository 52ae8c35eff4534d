"""Names for annotations of compiled functions."""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = List
