"""Conway's Game of Life on a torus, with a glider followed on its way.

    python examples/game_of_life.py [cells per side]

Small integers, `np.roll`, comparisons and boolean algebra: no floating point at all.
"""

import sys

import numpy as np

GLIDER = np.array([[0, 1, 0], [0, 0, 1], [1, 1, 1]], dtype=np.uint8)


def neighbours(board):
    """How many of the eight cells around each cell are alive."""
    rows = board + np.roll(board, 1, axis=0) + np.roll(board, -1, axis=0)
    return rows + np.roll(rows, 1, axis=1) + np.roll(rows, -1, axis=1) - board


def generation(board):
    """The next board: three neighbours give life, two keep it."""
    count = neighbours(board)
    return ((count == 3) | ((board == 1) & (count == 2))).astype(np.uint8)


def show(board):
    """A corner of the board as text."""
    return "\n".join("".join("#" if cell else "." for cell in row) for row in board)


def main(size, generations=60):
    lone = np.zeros((16, 16), dtype=np.uint8)
    lone[:3, :3] = GLIDER
    for _ in range(24):  # a glider moves one cell down and right in four generations
        lone = generation(lone)
    print(show(lone[5:10, 5:10]))
    print(f"glider arrived  {bool((lone[6:9, 6:9] == GLIDER).all())}")

    generator = np.random.default_rng(1970)
    board = (generator.random((size, size)) < 0.3).astype(np.uint8)
    for number in range(1, generations + 1):
        board = generation(board)
        if number % 20 == 0:
            print(f"generation {number:3d}: {np.count_nonzero(board)} alive")

    still = np.count_nonzero(board & generation(board))
    print(f"alive again     {still}")
    print(f"fullest row     {board.sum(axis=1, dtype=np.int64).max()}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 512)
