"""Writes files like MNIST's into a folder: ``python digits.py FOLDER COUNT``. A digit is a bar at a height of its own, so that a net learns it fast."""

import os
import random
import struct
import sys

folder, count = sys.argv[1], int(sys.argv[2])
random.seed(0)
for prefix, number in (("train", count), ("t10k", count // 2)):
    images, labels = bytearray(), bytearray()
    for _ in range(number):
        digit = random.randrange(10)
        images += bytes(min(255, (200 if y // 3 == digit and 4 < x < 24 else 0) + random.randrange(30)) for y in range(28) for x in range(28))
        labels.append(digit)
    with open(os.path.join(folder, f"{prefix}-images-idx3-ubyte"), "wb") as file:
        file.write(struct.pack(">IIII", 2051, number, 28, 28) + images)
    with open(os.path.join(folder, f"{prefix}-labels-idx1-ubyte"), "wb") as file:
        file.write(struct.pack(">II", 2049, number) + labels)
