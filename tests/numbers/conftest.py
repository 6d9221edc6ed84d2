"""Numbers as users have them: NumPy's where they leave a function."""

from tests.helpers.numbers_of_users import numbers_of_users  # noqa: F401  # a fixture
