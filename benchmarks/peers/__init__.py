"""The cases as users of other libraries would write them; imported where the library is there."""
